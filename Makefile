# The only door for developers. `make` alone prints what there is.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PY := .venv/bin/python
# PYTHON=python3.12 chooses the interpreter of .venv; the first of 3.11 or newer is taken otherwise.
PYTHON ?=
# QUESTION=name runs one question of the benchmark; ARGS=... is passed on as it is.
QUESTION ?=
# AGAINST=commit measures this tree and another commit in turns and prints ratios; nothing is kept.
AGAINST ?=
ARGS ?=
# PYTEST_ARGS='-x -k lease' is added to every pytest call.
PYTEST_ARGS ?=
# How many processes run all tests; more than processors, because tests mostly wait.
TEST_PROCESSES ?= 3
# The same for the quick lane.
QUICK_PROCESSES ?= 3
QUICK := tests/unit tests/rules tests/model tests/tidy
# REQUIRE_ALL=1: nothing may be skipped; what CI sets.
REQUIRE_ALL ?=
export REQUIRE_ALL
# Tests start thousands of Pythons: each would compile five hundred modules again, half a second.
unexport PYTHONDONTWRITEBYTECODE
ifeq ($(REQUIRE_ALL),1)
# What the installation makes; without it, a test makes one of its own.
export DEJAQ_IMAGE ?= localhost/dejaq
endif

CODE := $(wildcard src tests bench dev examples scripts clients/python/src)

.PHONY: help
help:
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

##@ Use it
.PHONY: demo demo-cluster demo-spark serve
demo: venv-run ## set up what is missing, then replay a year of flights in a minute (ARGS="--seconds 20")
	@$(PY) -m dejaqueue demo $(ARGS)

demo-cluster: venv-run ## the same on three brokers, of which one is killed and one is put to sleep
	@scripts/install.sh cluster
	@$(PY) -m dejaqueue demo --cluster $(ARGS)

demo-spark: venv-run ## the same flights as a campaign by Spark, drained, checked (ARGS="--date 2013-07-01")
	@scripts/install.sh spark
	@scripts/install_java.sh
	@$(PY) -m dejaqueue demo-spark $(ARGS)

serve: venv-run ## start a broker on ./demo-out/serve (ARGS="--data DIR --port N")
	@$(PY) -m dejaqueue serve $(or $(ARGS),--data demo-out/serve)

##@ Change it
.PHONY: setup check unit quick test timing format
setup: venv-dev ## make .venv with everything that checks and tests need
	@echo "ready: $$($(PY) -c 'import dejaqueue; print("dejaqueue", dejaqueue.__version__)') on $$($(PY) --version); next: make check"

check: venv-dev lint-only types imports docs-only tidy ## format, lint, types, imports, docs, house rules: fast

unit: venv-dev ## unit tests only
	@$(PY) -m pytest tests/unit $(PYTEST_ARGS)

quick: venv-dev ## unit tests, the rules, the models, the house rules: under three minutes on two cores
	@SECONDS=0; $(PY) -m pytest $(QUICK) -m "not slow and not crash and not timing" \
		-q -n $(QUICK_PROCESSES) --dist loadscope $(PYTEST_ARGS); echo "== quick: $$SECONDS s"

test: venv-test lint-only types imports docs-only ## everything, as CI runs it; tests/README.md says when to run what
	@echo "== tests"
	@SECONDS=0; $(PY) -m dev.second_run tests -m "not timing" -n $(TEST_PROCESSES) --dist loadscope $(PYTEST_ARGS); echo "== tests: $$SECONDS s"
	@$(MAKE) timing

# Status 5: PYTEST_ARGS leave none of them.
timing: venv-dev ## tests that judge by the clock on the wall, one after the other, on a machine that is quiet
	@echo "== timing"
	@$(PY) -m pytest tests -q -m timing -n 0 $(PYTEST_ARGS) || [ $$? -eq 5 ]

format: venv-dev ## rewrite the code in its one format
	@$(PY) -m ruff check --quiet --fix-only $(CODE)
	@$(PY) -m ruff format $(CODE)

##@ Check one thing
.PHONY: lint tidy docs docs-check notebooks picture site chart
lint: venv-dev lint-only types imports ## format, lint, types and import contracts

tidy: venv-dev ## the house rules, as tests
	@echo "== house rules"
	@$(PY) -m pytest tests/tidy -q $(PYTEST_ARGS)

docs: venv-dev ## write the generated code and pages again
	@$(PY) scripts/generate_light_client.py
	@$(PY) scripts/generate_sync_client.py
	@$(PY) scripts/generate_reference.py

docs-check: venv-dev docs-only ## fail if a generated page is stale or a link is broken
	@$(PY) -m pytest tests/docs -q $(PYTEST_ARGS)

notebooks: venv-dev ## run the notebooks, and write anew what they show (needs Spark; ARGS=first-steps: one)
	@PYTHONPATH=src:. $(PY) -m tests.docs.notebooks $(ARGS)

picture: venv-dev ## run the demo, and draw README's moving picture of it (ARGS="--seconds 20")
	@PYTHONPATH=src $(PY) scripts/draw_demo.py $(ARGS)

site: venv-dev ## make the documentation as a site, in build/site/html (ARGS=--serve shows it)
	@scripts/site.sh $(ARGS)

chart: venv-dev ## have helm lint the chart, and write what it makes of it again (builds helm at first: minutes)
	@scripts/install_helm.sh
	@PYTHONPATH=src:. $(PY) -m tests.cli.chart
	@$(PY) -m pytest tests/cli/test_helm.py -q $(PYTEST_ARGS)

##@ Prove: tests/README.md says which when
.PHONY: sim rot
SEED ?= 1
N ?= 200
KIND ?= broker
sim: venv-dev ## simulate a broker (KIND=cluster: several, KIND=clients: with the client library, KIND=moves: topics that move under consumers that come and go, KIND=servers: what nodes do about servers, KIND=views: with subscriptions and retention, KIND=rude: with bad input, KIND=fleet: a hundred brokers, once) with crashes, power cuts and a bad network (SEED=first N=how many)
	@PYTHONPATH=src:. $(PY) -m tests.simulation --kind $(KIND) --first $(SEED) --seeds $(N) $(ARGS)

.PHONY: sim-coverage
sim-coverage: venv-dev ## which statements simulated seeds run, by room (KIND=clients or several with commas, SEED=first N=how many, ARGS="--files client")
	@PYTHONPATH=src:. $(PY) -m tests.simulation.coverage --kind $(KIND) --first $(SEED) --seeds $(N) $(ARGS)

.PHONY: spark-heavy
spark-heavy: venv-dev ## what takes minutes with Spark: Spark Connect, declared tables, a killed pipeline
	@scripts/install.sh spark connect
	@scripts/install_java.sh
	@scripts/install_kafka.sh
	@SPARK_HEAVY=1 $(PY) -m pytest tests/spark/test_connect.py tests/spark/test_declared.py tests/spark/test_reorder.py $(PYTEST_ARGS)

rot: venv-dev ## flip bits in one of three JetStream servers, read everything back, repair (SEED=first N=how many)
	@scripts/install.sh cluster
	@PYTHONPATH=src:. $(PY) -m tests.cluster.rot --first $(SEED) --seeds $(if $(filter 200,$(N)),3,$(N)) $(ARGS)
	@PYTHONPATH=src:. $(PY) -m tests.cluster.rot_embedded --first $(SEED) $(ARGS)

.PHONY: celery-suites
celery-suites: venv-dev ## kombu's and Celery's own integration tests on a broker of this tree (ARGS="-k priority")
	@PYTHONPATH=src:. $(PY) -m tests.integration.celery_suites $(ARGS)

.PHONY: membership
membership: venv-dev ## nodes of an embedded cluster join and leave under load, with kills (ARGS="--rounds 4 --seed 1")
	@scripts/install.sh cluster
	@PYTHONPATH=src:. $(PY) -m tests.cluster.membership $(ARGS)

BATCHES ?= 1000000
PLANTED ?=
.PHONY: fuzz
fuzz: venv-dev ## spoilt Arrow batches at a broker: no death, no InternalError, no secret (BATCHES=1000000 SEED=first PLANTED=hole)
	@PYTHONPATH=src:. $(PY) -m tests.hostile.fuzz --batches $(BATCHES) --seed $(SEED) --planted "$(PLANTED)"

.PHONY: mutants crash powercut crash-states disasters soak mixture chaos chaos-containers reliability
mutants: venv-dev ## plant every bug in the simulation, and say which seed finds it (ARGS=names)
	@PYTHONPATH=src:. $(PY) -m tests.simulation.find_mutants $(ARGS)

BACKEND ?= segment
CYCLES ?= 100
crash: venv-dev ## a broker under load, killed again and again with its server (BACKEND=redis CYCLES=100)
	@PYTHONPATH=src:. $(PY) -m tests.crash.storm --backend $(BACKEND) --cycles $(CYCLES) $(ARGS)

ENGINE ?= segment
CUTS ?= 20
powercut: venv-dev ## the power is cut beneath a loaded broker and its engine, again and again (ENGINE=segment|sqlite|postgresql|jetstream|jetstream3 CUTS=20); needs FUSE
	@PYTHONPATH=src:. $(PY) -m tests.crash.powercut --engine $(ENGINE) --cuts $(CUTS) $(ARGS)

STATES ?= 200000
POINTS ?= 500
crash-states: venv-dev ## a crash, or a failure, at every call of the segment journal, with all that a disk may keep (STATES=200000 POINTS=500 SEED=first)
	@PYTHONPATH=src:. $(PY) -m tests.crash.crash_states --states $(STATES) --first $(SEED) $(ARGS)
	@PYTHONPATH=src:. $(PY) -m tests.crash.failing_calls --points $(POINTS)

disasters: venv-dev ## directories, buckets and archives are lost, rotten, cut off or replaced; what comes back is judged (SEED=first N=how many)
	@scripts/install_object_stores.sh || true
	@PYTHONPATH=src:. $(PY) -m tests.disasters --first $(SEED) --count $(N) $(ARGS)

soak: venv-dev ## a mixed load for an hour, killed now and then: nothing lost, nothing grows (ARGS="--minutes N")
	@PYTHONPATH=src:. $(PY) -m tests.soak $(ARGS)

mixture: venv-dev ## brokers with all features that may meet, drawn by seed, foreign clients, accidents, a restore (ARGS="--seed N --count 10 --seconds 30")
	@PYTHONPATH=src:. $(PY) -m tests.mixture $(ARGS)

chaos: venv-dev ## three brokers in networks that fail, killed, paused, their clocks moved, for 20 minutes (ARGS="--minutes N --backend servers|embedded --seed N --faults A,B"); needs root
	@scripts/install.sh cluster
	@scripts/install_servers.sh || true
	@PYTHONPATH=src:. $(PY) -m tests.chaos $(ARGS)

chaos-containers: venv-dev ## three containers of the image, of which one is killed, one drained, all upgraded under load, in two minutes; needs root and podman
	@scripts/install.sh cluster
	@scripts/install_containers.sh || true
	@PYTHONPATH=src:. $(PY) -m tests.chaos.containers $(ARGS)

reliability: venv-dev ## everything that breaks things on purpose, in an hour or so (SEEDS=2000 SEED=first ARGS="--chaos-minutes N")
	@scripts/install_pythons.sh
	@scripts/install_servers.sh || true
	@scripts/install_clients.sh go java || true
	@PYTHONPATH=src:. $(PY) -m tests.reliability --first $(SEED) --seeds $(or $(SEEDS),2000) $(ARGS)

##@ Measure
.PHONY: bench figures bench-scale bench-many bench-spark bench-cluster bench-workers bench-peers bench-sqs bench-subscriptions
bench: venv-bench ## measure DejaQ and its peers (QUESTION=throughput; AGAINST=commit: this tree and that one in turns)
	@scripts/install_servers.sh || true
	@$(PY) -m bench $(QUESTION) $(if $(AGAINST),--against $(AGAINST)) $(ARGS)
	@$(PY) scripts/generate_reference.py

figures: venv-bench ## all figures of README.md, anew, at a clean commit
	@test -z "$$(git status --porcelain)" || { echo "make figures: commit first: figures name the commit they are of"; exit 1; }
	@scripts/install.sh cluster
	@scripts/install_servers.sh || true
	@$(PY) -m bench throughput lateness hot_instant scale cluster --keep $(ARGS)
	@$(PY) scripts/generate_reference.py

bench-scale: venv-bench ## 100 million scheduled messages: memory, rates, start (ARGS="--messages N")
	@$(PY) -m bench scale $(ARGS)
	@$(PY) scripts/generate_reference.py

bench-many: venv-bench ## many consumers, partitions, topics beside one of each, in three minutes (AGAINST=commit)
	@$(PY) -m bench many $(if $(AGAINST),--against $(AGAINST)) $(ARGS)
	@$(PY) scripts/generate_reference.py

bench-workers: venv-bench ## tasks beside Celery, Dramatiq, Huey, RQ and arq, on Redis and RabbitMQ (ARGS="--rounds 1": 25 minutes)
	@scripts/install_servers.sh || true
	@scripts/install_peers.sh || true
	@$(PY) -m bench workers $(ARGS)
	@$(PY) scripts/generate_reference.py

bench-peers: venv-bench ## one message a call, and delays, beside eight other queues, in twelve minutes at most (ARGS="--systems redis,dejaq")
	@scripts/install.sh cluster
	@scripts/install_servers.sh || true
	@scripts/install_peers.sh || true
	@$(PY) -m bench peers $(ARGS)
	@$(PY) scripts/generate_reference.py

bench-sqs: venv-bench ## SQS's calls beside moto and ElasticMQ, and delays of days, in a quarter of an hour
	@scripts/install_peers.sh || true
	@$(PY) -m bench sqs $(ARGS)
	@$(PY) scripts/generate_reference.py

bench-subscriptions: venv-bench ## subscriptions and replay beside Kafka, Redis streams and JetStream, in twelve minutes (AGAINST=commit)
	@scripts/install.sh cluster
	@scripts/install_servers.sh || true
	@scripts/install_kafka.sh || true
	@$(PY) -m bench subscriptions --rounds 3 --seconds 4 $(if $(AGAINST),--against $(AGAINST)) $(ARGS)
	@$(PY) scripts/generate_reference.py

bench-spark: venv-bench ## Spark writes and reads topics, beside what Spark takes itself
	@scripts/install.sh spark
	@scripts/install_java.sh || true
	@$(PY) -m bench spark spark_lateness $(ARGS)
	@$(PY) scripts/generate_reference.py

bench-cluster: venv-bench ## three copies, PostgreSQL, hand-over and failover of 100 partitions, in five minutes
	@scripts/install.sh cluster
	@scripts/install_servers.sh || true
	@$(PY) -m bench cluster $(ARGS)
	@$(PY) scripts/generate_reference.py

##@ Ship
.PHONY: image first-message
image: venv ## make the image from Debian's packages, without a registry, as localhost/dejaq (ARGS=TAG)
	@scripts/install_containers.sh || true
	@scripts/image.sh $(ARGS)

first-message: venv ## how long it takes from an empty Debian to a message that is delivered
	@scripts/install_containers.sh || true
	@scripts/first_message.sh

##@ Keep house
.PHONY: lock licences sbom sbom-check audit clean
lock: ## lock versions again (needs uv; ARGS=--upgrade for newer ones)
	@scripts/lock.sh $(ARGS)

licences: venv-dev ## write the table of licences again, from all that this Python can install
	@scripts/install.sh run cluster spark connect
	@$(PY) scripts/generate_reference.py

sbom: venv-run ## write what a release consists of, with licences, as CycloneDX JSON (dist/dejaqueue.cdx.json)
	@scripts/sbom.sh $(ARGS)

sbom-check: ## make that list from two fresh checkouts of what is committed: the same bytes
	@scripts/sbom.sh --twice

audit: venv-run ## ask the package index for known flaws of what a release brings; says so where none answers
	@scripts/audit.sh

clean: ## remove what builds, tests and demos left; .venv stays
	@rm -rf build dist demo-out bench/out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find src tests bench examples scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Steps without a word of their own in the list above.
.PHONY: venv venv-run venv-dev venv-bench venv-test lint-only types imports docs-only
venv:
	@scripts/make_venv.sh $(PYTHON)
venv-run: venv
	@scripts/install.sh run
venv-dev: venv
	@scripts/install.sh dev
venv-bench: venv
	@scripts/install.sh run bench

# Tests of the benchmark need the peers and their clients, and are skipped where those are missing;
# where nothing may be skipped, all of them are installed.
venv-test: venv-dev
ifeq ($(REQUIRE_ALL),1)
	@scripts/install.sh bench spark cluster
	@scripts/install_servers.sh
	@scripts/install_java.sh
	@scripts/install_kafka.sh || true
	@scripts/install_issuer.sh || true
	@scripts/install_cassandra.sh || true
	@scripts/install_zookeeper.sh || true
	@scripts/install_object_stores.sh || true
	@scripts/install_clients.sh || true
	@scripts/install_sdks.sh || true
	@scripts/install_site.sh || true
	@scripts/install_containers.sh || true
	@scripts/image.sh localhost/dejaq || true
	@scripts/install_pythons.sh
endif

lint-only: venv-dev
	@echo "== format and lint"
	@$(PY) -m ruff format --check --quiet $(CODE)
	@$(PY) -m ruff check --quiet $(CODE)

types: venv-dev
	@echo "== types"
	@$(PY) -m mypy --no-error-summary

imports: venv-dev
	@echo "== import contracts"
	@found="$$(PYTHONPATH=src .venv/bin/lint-imports --no-cache)" || { echo "$$found" | sed 1,11d; exit 1; }; \
		echo "$$found" | grep '^Contracts:'

docs-only: venv-dev
	@echo "== generated code and pages"
	@$(PY) scripts/generate_light_client.py --check
	@$(PY) scripts/generate_sync_client.py --check
	@$(PY) scripts/generate_reference.py --check
