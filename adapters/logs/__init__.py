"""What engines write about themselves, line by line: tables of labels, one reader, and the files that hold them."""
