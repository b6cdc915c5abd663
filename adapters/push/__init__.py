"""Steps that engines in other languages push over HTTP, checked and turned into the slots of a ring; docs/push.md."""
