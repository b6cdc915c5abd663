"""Pure functions and facts: architecture, hardware, features, roofline, attribution, rules."""
