# The front door. `make demo` and `make test` do everything, set-up included.
.PHONY: setup build test
setup:
	./scripts/setup.sh
build: setup
	cmake --preset release && cmake --build --preset release
test: build
	ctest --preset release
