# Aliases for dev.py, for fingers that type make.
.PHONY: run test check sweep bench
run test check sweep bench:
	@python3 dev.py $@
