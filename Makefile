# SPDX-License-Identifier: Apache-2.0
# Build, check, lint, install. Scripts hold the logic; this file calls them.

CC ?= cc
PKG_CONFIG ?= pkg-config
PREFIX ?= /usr/local
OUTPUT ?= .output
CFLAGS ?= -O2 -g
PYTHON ?= /usr/bin/python3
INSTALL ?= install

VERSION := $(shell cat VERSION)

# What the C core and BPF share, as one number: luabpf.lib refuses a library
# that was built from other headers than those it compiles BPF with.
WIRE_HEADERS := bpf_c/lb_wire.h bpf_c/lj_offsets.h
WIRE_ID := $(shell cat $(WIRE_HEADERS) | sha256sum | cut -c1-16)

PKGS := libbpf liblzma capstone
LB_CFLAGS := -std=gnu11 -fPIC -fvisibility=hidden -MMD -MP \
	-Wall -Wextra -Wmissing-prototypes -Wshadow \
	-DLB_VERSION='"$(VERSION)"' -DLB_WIRE_ID='"$(WIRE_ID)"' -iquote helpers $(shell $(PKG_CONFIG) --cflags $(PKGS))
LB_LIBS := $(shell $(PKG_CONFIG) --libs $(PKGS)) -lstdc++
ifeq ($(WERROR),1)
LB_CFLAGS += -Werror
endif
ifeq ($(SAN),1)
LB_CFLAGS += -fsanitize=address,undefined -fno-sanitize-recover=undefined
LB_LIBS += -fsanitize=address,undefined
endif

ifeq ($(V),1)
Q :=
say = @:
else
Q := @
say = @printf '  %-8s %s\n'
endif

LIB := $(OUTPUT)/libluabpf.so
# What only the command lj-offsets has, and libdw with it.
COMMAND := $(OUTPUT)/lj-offsets
COMMAND_MAIN := $(OUTPUT)/helpers/lj_offsets.o
COMMAND_OBJS := $(patsubst %,$(OUTPUT)/helpers/%.o,\
	build dwarf)
COMMAND_SHARED := $(patsubst %,$(OUTPUT)/helpers/%.o,\
	buf code ehframe elf fields layout luajit offsets opcodes scan scanfunc)
COMMAND_LIBS := -ldw -lelf $(shell $(PKG_CONFIG) --libs capstone)
LIB_OBJS := $(filter-out $(COMMAND_MAIN) $(COMMAND_OBJS),\
	$(patsubst helpers/%.c,$(OUTPUT)/helpers/%.o,$(wildcard helpers/*.c)))
UNIT_TESTS := $(patsubst tests/unit/%.c,$(OUTPUT)/tests/unit/%,\
	$(wildcard tests/unit/test_*.c))
BENCHES := $(OUTPUT)/tests/bench/bench_unwind $(OUTPUT)/tests/bench/deep

.DELETE_ON_ERROR:
.PHONY: all unit-tests check check-bpf check-full bench bench-progs fuzz lint \
	format docs offsets install uninstall clean

all: $(LIB) $(COMMAND)

$(OUTPUT)/helpers/%.o: helpers/%.c
	$(say) CC $<
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LB_CFLAGS) -c -o $@ $<

$(LIB): $(LIB_OBJS) helpers/lb.map
	$(say) LD $@
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,--version-script=helpers/lb.map \
		-o $@ $(LIB_OBJS) $(LB_LIBS)

$(COMMAND): $(COMMAND_MAIN) $(COMMAND_OBJS) $(COMMAND_SHARED)
	$(say) LD $@
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(COMMAND_LIBS) \
		$(filter -fsanitize%,$(LB_LIBS))

# No entry of the table, as with a build of tomorrow: for tests, with an OUTPUT
# of its own.
ifeq ($(LB_WITHOUT_TABLE),1)
$(OUTPUT)/helpers/offsets.o: LB_CFLAGS += -DLB_WITHOUT_TABLE
endif

# Unit tests see internal functions: they link the objects, not the library.
$(OUTPUT)/tests/unit/%: tests/unit/%.c $(LIB_OBJS) $(COMMAND_OBJS)
	$(say) CC $<
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LB_CFLAGS) -o $@ $< $(COMMAND_OBJS) $(LIB_OBJS) \
		$(LB_LIBS) $(COMMAND_LIBS)

unit-tests: $(UNIT_TESTS)

# The same for programs of tests/bench, but one that stands for other people's.
$(OUTPUT)/tests/bench/%: tests/bench/%.c $(LIB_OBJS)
	$(say) CC $<
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LB_CFLAGS) -o $@ $< $(LIB_OBJS) $(LB_LIBS)

$(OUTPUT)/tests/bench/deep: tests/bench/deep.c
	$(say) CC $<
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -O2 -fno-omit-frame-pointer -fno-optimize-sibling-calls \
		-std=gnu11 -Wall -Wextra -o $@ $<

# A host that embeds the LuaJIT whose headers are installed, for scripts/demo;
# the hosts of tests/bpf are built by its harness.
$(OUTPUT)/tests/progs/%: tests/progs/%.c
	$(say) CC $<
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -O2 -g -fomit-frame-pointer -std=gnu11 -Wall -Wextra -pthread \
		-MMD -MP $(shell $(PKG_CONFIG) --cflags luajit) -o $@ $< \
		$(shell $(PKG_CONFIG) --libs luajit) -ldl -lm

check: all unit-tests
	$(Q)$(PYTHON) tests/check.py $(UNIT_TESTS)

check-bpf: all
	$(Q)$(PYTHON) tests/bpf/run.py

check-full: all unit-tests
	$(Q)LB_FULL=1 $(PYTHON) tests/bpf/run.py

fuzz:
	$(Q)OUTPUT=$(OUTPUT) scripts/fuzz

# BENCH="-k NAME", BENCH=--quick: see tests/bench/run.py
bench: all bench-progs
	$(Q)$(PYTHON) tests/bench/run.py $(BENCH)

bench-progs: $(BENCHES)

lint:
	$(Q)scripts/lint

format:
	$(Q)scripts/format

docs: $(COMMAND)
	$(Q)OUTPUT=$(OUTPUT) scripts/refresh-usage

# FILES: LuaJIT files with debug info; without: entries from tests/data.
offsets: $(COMMAND)
	$(Q)OUTPUT=$(OUTPUT) $(PYTHON) scripts/update-offsets $(FILES)

install: all
	$(Q)PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) OUTPUT=$(OUTPUT) \
		INSTALL="$(INSTALL)" scripts/install-files install

uninstall:
	$(Q)PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) scripts/install-files uninstall

clean:
	$(Q)rm -rf $(OUTPUT)

-include $(LIB_OBJS:.o=.d) $(COMMAND_MAIN:.o=.d) $(COMMAND_OBJS:.o=.d) \
	$(UNIT_TESTS:=.d) $(BENCHES:=.d) \
	$(wildcard $(OUTPUT)/tests/progs/*.d)
