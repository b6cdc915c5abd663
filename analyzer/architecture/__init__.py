"""A model's layers from the fields of its config.json: which stands where, and what each of them holds."""
