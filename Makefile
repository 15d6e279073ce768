# Every target sets up what it needs first; a checkout that is current goes straight on. The logic is in scripts/.
.DEFAULT_GOAL := help
.PHONY: help setup setup-run demo test lint check soak bench demo-svg clean
MAKEFLAGS += --no-print-directory
BIN := .venv/bin

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | expand -t 12

setup: ## Debian packages, .venv, the project in it
	@scripts/setup.sh test

setup-run:
	@scripts/setup.sh run

demo: setup-run ## the main job on built-in examples, offline
	@$(BIN)/fumehood demo

test: setup ## every test; ARGS="tests/broker -k redirect" for some
	@$(BIN)/pytest $(ARGS)

lint: setup ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/mypy src tests scripts

check: lint test ## what a change has to pass

soak: setup ## ten thousand calls, then nothing may be left behind
	@$(BIN)/pytest -m soak $(ARGS)

bench: setup ## figures of this machine; ARGS="isolate --quick" for some
	@scripts/bench.sh $(ARGS)

demo-svg: setup-run ## run the demo and write docs/demo.svg
	@$(BIN)/python scripts/demo_svg.py

clean: ## everything that the other targets made
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build .coverage
