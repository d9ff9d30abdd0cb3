# make demo: the five classic kernels on this machine's CPU.  make test: everything the tests' gate checks (FULL=1: with all tests and combinations).
# make check: lint, types, and what guards most in a few minutes: the compiler's stages, the emulated machine, the cache,
# operations on the CPU.
# make bench: sizes and compile times, measured.  make perf: the conformance suite's verdicts about speed, for a machine with nothing else to do.
# make ecosystem: programs written for Triton, installed from the package index, and a table of what runs.
# make corpus: kernels of public packages, compiled by Tilewright and by Triton, side by side (docs/performance/corpus.md).
# make opencl: the OpenCL example with all cases of its profiles, on the OpenCL driver that there is; where there is none, one is installed.
# make release: wheels and source archives of every distribution in dist/, checked, installed and run (TAG=v0.2.0: for that tag).
# make gpu-test: every test that needs an NVIDIA GPU, on a machine that has one.  make gpu-sanitize: kernels under compute-sanitizer.
PYTHON ?= python3
VENV ?= .venv
# 0 to leave PyTorch out, and skip the tests that use it
TORCH ?= 1
# 1 to run the tests and combinations of parameters that `make test` leaves out (docs/performance/tests.md)
FULL ?= 0
# 1 to draw the demo's times as bars
PLOT ?= 0
# a Python that has the packages, pytest-xdist, hypothesis and PyTorch for CUDA already; where empty, .venv gets them
GPU_PYTHON ?=
# where `make ecosystem` runs kernels of other programs, and where it installs these
DEVICE ?= cpu
ECOSYSTEM ?= build/ecosystem
# where `make corpus` installs the packages whose kernels it compiles, and Triton
CORPUS ?= build/corpus/venv
# packages that come as source archives are installed without their CUDA extensions
PYTHON_ALONE := MAMBA_SKIP_CUDA_BUILD=TRUE MAMBA_FORCE_BUILD=TRUE FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE FLASH_ATTENTION_FORCE_BUILD=TRUE
# how often each case of the conformance suite is run in a row on a GPU, with warm caches
REPEAT ?= 20
SANITIZER ?= compute-sanitizer
BIN := $(VENV)/bin
# tests start hundreds of processes: none of them compiles again what Python has compiled, whatever the environment says
export PYTHONDONTWRITEBYTECODE :=
CHECKED := $(addprefix core/tests/,ir frontend language llvm passes plugins reference simt test_layering.py runtime/storage/test_disk_cache.py \
	runtime/compiler/test_specialization.py runtime/arguments/test_argument_words.py) $(addprefix conformance/tests/op_samples/,test_every_op.py test_samples.py test_watched_operations.py) \
	$(addprefix backends/cpu/tests/,test_launch.py codegen/ops/test_scan.py) backends/amd/tests/test_mutants.py
# installs PyTorch or removes it, of which mypy does not ask
TORCH_FIRST = $(MAKE) --no-print-directory $(VENV)/.torch-$(TORCH)
# runs a command beside mypy, which has work for one processor; what mypy says comes last, and either's failure is the whole's
beside_mypy = @mkdir -p build; $(BIN)/mypy > build/mypy.txt 2>&1 & mypy=$$!; $(1); failed=$$?; wait $$mypy; wrong=$$?; cat build/mypy.txt; exit $$((failed | wrong))
SUITE := $(BIN)/python -m tilewright_conformance run --backend cpu
# profiles of which `make test` runs the quick cases, and all with FULL=1
BRIEF := math fp8 exact gradients
PACKAGES := -e "core[llvm]" -e backends/cpu -e backends/nvidia -e backends/amd -e backends/amd/emulator -e conformance -e kernels

.PHONY: demo test check lint style docs bench perf ecosystem corpus opencl release gpu-test gpu-sanitize clean

demo: $(VENV)/.installed
	$(BIN)/python examples/demo.py $(if $(filter 1,$(PLOT)),--plot)

test: style
	$(call beside_mypy,$(TORCH_FIRST) && $(BIN)/python -m pytest -n 2 --dist worksteal $(if $(filter 1,$(FULL)),--full))
	$(SUITE) --without perf $(if $(filter 1,$(FULL)),,$(addprefix --without ,$(BRIEF))) --report build/conformance
	$(if $(filter 1,$(FULL)),,$(SUITE) $(addprefix --profile ,$(BRIEF)) --quick --report build/conformance-quick)

check: style
	$(call beside_mypy,$(TORCH_FIRST) && $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" $(CHECKED))

lint: style
	$(BIN)/mypy

style: $(VENV)/.developer
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .

docs: $(VENV)/.developer
	$(BIN)/python -m mkdocs build --strict

bench: $(VENV)/.developer
	$(BIN)/python benchmarks/cpu/compile_time.py
	$(BIN)/python benchmarks/cpu/sweep.py

perf: $(VENV)/.installed
	$(BIN)/python -m tilewright_conformance run --backend cpu --profile perf --report build/conformance-perf

ecosystem: $(ECOSYSTEM)/.installed
	$(ECOSYSTEM)/bin/python ecosystem/run.py --device $(DEVICE)

corpus: $(CORPUS)/.installed
	PYTHONPATH=ecosystem $(CORPUS)/bin/python -m corpus $(if $(filter cuda,$(DEVICE)),--device cuda)

opencl: $(VENV)/.developer
	$(BIN)/python -m pip install --quiet pyopencl
	$(BIN)/python -c "import pyopencl; pyopencl.get_platforms()" 2> /dev/null || $(BIN)/python -m pip install --quiet pocl-binary-distribution
	TILEWRIGHT_FULL_CONFORMANCE=1 $(BIN)/python -m pytest -rs examples/tests/test_backend_opencl.py

release: $(VENV)/.developer
	$(BIN)/python tools/release.py $(if $(TAG),--tag $(TAG))

gpu-test: $(if $(GPU_PYTHON),,$(VENV)/.torch-1)
	$(or $(GPU_PYTHON),$(BIN)/python) -m pytest -m gpu -n auto --dist worksteal backends/nvidia conformance/tests kernels/tests examples
	$(or $(GPU_PYTHON),$(BIN)/python) -m tilewright_conformance run --backend nvidia --repeat $(REPEAT) --report build/conformance-nvidia

gpu-sanitize: $(if $(GPU_PYTHON),,$(VENV)/.installed)
	backends/nvidia/tools/sanitize.sh $(SANITIZER) $(or $(GPU_PYTHON),$(BIN)/python)

$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

$(VENV)/.installed: $(VENV)/.created core/pyproject.toml backends/cpu/pyproject.toml backends/nvidia/pyproject.toml backends/amd/pyproject.toml backends/amd/emulator/pyproject.toml conformance/pyproject.toml kernels/pyproject.toml
	$(BIN)/python -m pip install --quiet "hatchling>=1.24,<2" editables
	$(BIN)/python -m pip install --quiet --no-build-isolation $(PACKAGES)
	touch $@

$(VENV)/.developer: $(VENV)/.installed requirements-dev.txt ecosystem/corpus/requirements-sample.txt
	$(BIN)/python -m pip install --quiet -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --no-deps -r ecosystem/corpus/requirements-sample.txt
	touch $@

# whether PyTorch is there: each of the two takes the other's mark away, so that either choice may follow the other; of its
# 2,500 modules, what is imported is compiled
$(VENV)/.torch-1: $(VENV)/.developer requirements-torch.txt
	$(BIN)/python -m pip install --quiet --no-compile -r requirements-torch.txt
	rm -f $(VENV)/.torch-0
	touch $@

$(VENV)/.torch-0: $(VENV)/.developer
	$(BIN)/python -m pip uninstall --quiet --yes torch
	rm -f $(VENV)/.torch-1
	touch $@

# what needs Triton is installed without it, and without PyTorch's of another version
$(ECOSYSTEM)/.installed: ecosystem/requirements.txt ecosystem/requirements-triton.txt requirements-torch.txt
	$(PYTHON) -m venv $(ECOSYSTEM)
	$(ECOSYSTEM)/bin/python -m pip install --quiet $(PACKAGES) -r requirements-torch.txt -r ecosystem/requirements.txt
	$(ECOSYSTEM)/bin/python -m pip install --quiet --no-deps -r ecosystem/requirements-triton.txt
	touch $@

# the packages in the versions of the records
$(CORPUS)/.installed: ecosystem/requirements.txt ecosystem/corpus/requirements.txt requirements-torch.txt $(wildcard ecosystem/corpus/launches/*.json)
	$(PYTHON) -m venv $(CORPUS)
	$(CORPUS)/bin/python -m pip install --quiet $(PACKAGES) -r requirements-torch.txt -r ecosystem/requirements.txt -r ecosystem/corpus/requirements.txt
	$(PYTHON) ecosystem/corpus/packages.py > $(CORPUS)/packages.txt
	$(CORPUS)/bin/python -m pip install --quiet --no-deps unsloth_zoo
	$(PYTHON_ALONE) $(CORPUS)/bin/python -m pip install --quiet --no-deps --no-build-isolation -r $(CORPUS)/packages.txt
	touch $@

clean:
	rm -rf $(VENV) site build dist
