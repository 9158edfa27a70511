# For fish: read when one of the two programs is completed first.
cawl-cli completions fish | source
