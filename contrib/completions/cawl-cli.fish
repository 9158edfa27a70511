# For fish: read when cawl-cli is completed first.
cawl-cli completions fish | source
