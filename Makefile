# On a fresh machine two commands suffice: `make demo` and `make test`.
# Recipes print nothing themselves, so `make demo ARGS=--json` prints one JSON document.

.PHONY: help first-minutes clients demo test check fix asan gloo-generations fuzz sim security bench bench-topology train lab-clean faults soak reliability model threads test-python test-torch bench-torch

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' Makefile | awk -F '\t' '{ printf "  make %-16s %s\n", $$1, $$2 }'

first-minutes: ## from nothing to a verified sum on two machines of the lab, two commands each (ARGS=code, or key)
	@scripts/first-minutes.sh $(ARGS)

clients: ## PyTorch, MLX, JAX and Open MPI on three machines of the lab, installed once (ARGS="mlx mpi": these; orders: start orders)
	@scripts/clients.sh $(ARGS)

demo: ## build, then several peers on this machine find each other and sum (ARGS=--json)
	@scripts/demo.sh $(ARGS)

test: ## all tests; the last line counts (ARGS="contract mismatch": one suite, and of it the tests that the words name)
	@scripts/test.sh $(ARGS)

check: ## format, lints, documentation, licences; never writes, runs no test
	@scripts/check.sh

fix: ## format, and lints that can mend themselves
	@cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged && cargo fmt --all

model: ## every history of small groups, walks by chance (SEEDS=, or one SEED=), and mutants that must be found
	@SEEDS="$(SEEDS)" SEED="$(SEED)" scripts/model.sh

threads: ## the code in which threads meet, in many orders of its threads (SEEDS=200, or one SEED=), and seeded races that must be found
	@SEEDS="$(SEEDS)" SEED="$(SEED)" scripts/threads.sh $(ARGS)

test-torch: ## the PyTorch backend, with PyTorch from PyPI (6 GB); ARGS goes to pytest
	@scripts/torch.sh $(ARGS)

test-python: ## the Python package and its types (ARGS=wheel makes the wheel and runs it on every Python that is here)
	@scripts/python.sh $(ARGS)

asan: ## the collective's tests under AddressSanitizer
	@MINUTES="$(MINUTES)" scripts/asan.sh $(ARGS)

gloo-generations: ## the Gloo engine against other generations of Gloo (ARGS="DIR..." with their sources)
	@scripts/gloo-generations.sh $(ARGS)

fuzz: ## every fuzz target for MINUTES=n (1); ARGS names targets (KEEP=1 keeps the inputs it finds for make test)
	@MINUTES="$(MINUTES)" KEEP="$(KEEP)" scripts/fuzz.sh $(ARGS)

sim: ## whole groups in virtual time: SEEDS=n (500) runs of five minutes each, or the run SEED=n (HOSTS=n, LOGS=folder, MUTANT=, also lies)
	@SEEDS="$(SEEDS)" SEED="$(SEED)" HOSTS="$(HOSTS)" LOGS="$(LOGS)" MUTANT="$(MUTANT)" \
		scripts/sim.sh

security: ## every threat of docs/security.md, with the tests that provoke it: a table (ARGS="T2 T10" chooses, JOINS=100, LIARS=1000)
	@JOINS="$(JOINS)" LIARS="$(LIARS)" scripts/security.sh $(ARGS)

faults: ## every fault in every phase, with real processes: a table (ARGS="--fault kill --n 3" chooses, MEMORY=1)
	@MEMORY="$(MEMORY)" scripts/faults.sh $(ARGS)

soak: ## real processes, calls and faults by chance for MINUTES=n (5), and a check of their logs (SEED=, ENGINE=, MUTANT=, MEMORY=1)
	@MINUTES="$(MINUTES)" SEED="$(SEED)" ENGINE="$(ENGINE)" MUTANT="$(MUTANT)" MEMORY="$(MEMORY)" scripts/soak.sh $(ARGS)

bench: ## times in the lab, written to docs/benchmarks.md (ARGS=--quick for a look)
	@scripts/bench.sh $(ARGS)

train: ## four processes train on handwritten digits with every codec, written to docs/training.md (ARGS=--quick for a look)
	@scripts/train.sh $(ARGS)

bench-torch: ## the PyTorch backend beside gloo in the lab, with PyTorch from PyPI (ARGS="mixed4": one profile)
	@scripts/bench-torch.sh $(ARGS)

bench-topology: ## unequal machines in the lab, beside Gloo's ring (ARGS=--quick for a look)
	@scripts/bench.sh topology $(ARGS)

reliability: ## the fault matrix and times of loss, written to docs/reliability.md (ARGS=--quick for a look, --crowd for sixteen processes)
	@scripts/reliability.sh $(ARGS)

lab-clean: ## remove every lab (network namespaces) of this machine
	@lab/lab clean
