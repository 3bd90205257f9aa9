/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Function symbols of one file, sorted by address.
 *
 * Names stay where they are, in the files' own string tables; text is made when
 * a symbol is first asked for. Of several symbols at one address the one that
 * a programmer would call the function by is kept.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "debugfile.h"
#include "demangle.h"
#include "sym.h"

#define SYMS_MAX     (1U << 22) /* symbols of one file */
#define LOOK_BACK    64		/* symbols in which one may be nested */
#define SECTIONS_MAX 4096

struct entry {
	uint64_t vaddr;
	uint64_t size; /* bytes; 0: not known */
	const char *name;
	char *text; /* NULL until asked for */
	uint8_t rank;
};

struct lb_sym {
	struct lb_elf *debug; /* separate file, NULL if none */
	struct lb_elf *mini;  /* .gnu_debugdata, NULL if none */
	struct entry *entries;
	size_t n_entries;
	size_t room;
};

struct reader {
	struct lb_sym *sym;
	const struct lb_elf *elf;
	/* by section index: 0 not yet known, 1 no code, 2 code */
	uint8_t sections[SECTIONS_MAX];
};

static bool is_code(struct reader *reader, unsigned int shndx)
{
	struct lb_section section;

	if (shndx >= SECTIONS_MAX)
		return false;
	if (!reader->sections[shndx]) {
		bool code = !lb_elf_section_at(reader->elf, shndx, &section) &&
			    section.flags & SHF_EXECINSTR;

		reader->sections[shndx] = code ? 2 : 1;
	}
	return reader->sections[shndx] == 2;
}

static bool is_function(struct reader *reader, const struct lb_elf_sym *sym)
{
	if (sym->shndx == SHN_UNDEF || sym->shndx >= SHN_LORESERVE ||
	    !sym->vaddr)
		return false;
	if (sym->type == STT_FUNC || sym->type == STT_GNU_IFUNC)
		return true;
	/* hand-written assembly; .L labels are parts of functions */
	return sym->type == STT_NOTYPE && strncmp(sym->name, ".L", 2) &&
	       is_code(reader, sym->shndx);
}

/* Lower is better. */
static uint8_t rank_of(const struct lb_elf_sym *sym)
{
	uint8_t rank = sym->type == STT_NOTYPE ? 128 : 0;
	size_t underscores = strspn(sym->name, "_");

	/* _Z is how C++ begins, not a mark of something internal */
	if (underscores && sym->name[underscores] == 'Z')
		underscores = 0;
	if (sym->bind == STB_WEAK)
		rank += 32;
	else if (sym->bind == STB_LOCAL)
		rank += 64;
	return rank + (uint8_t)(underscores < 31 ? underscores : 31);
}

static int add(void *arg, const struct lb_elf_sym *elf_sym)
{
	struct reader *reader = arg;
	struct lb_sym *sym = reader->sym;

	if (!is_function(reader, elf_sym))
		return 0;
	if (sym->n_entries == SYMS_MAX)
		return -E2BIG;
	if (sym->n_entries == sym->room) {
		size_t room = sym->room ? 2 * sym->room : 1024;
		struct entry *entries =
			realloc(sym->entries, room * sizeof(*entries));

		if (!entries)
			return -ENOMEM;
		sym->entries = entries;
		sym->room = room;
	}
	sym->entries[sym->n_entries++] = (struct entry){
		.vaddr = elf_sym->vaddr,
		.size = elf_sym->size,
		.name = elf_sym->name,
		.rank = rank_of(elf_sym),
	};
	return 0;
}

/* -ENODATA when there is no such table; a bad one is like none. */
static int add_table(struct lb_sym *sym, const struct lb_elf *elf,
		     const char *table)
{
	struct reader reader = { .sym = sym, .elf = elf };
	int err = lb_elf_each_sym(elf, table, add, &reader);

	if (err == -E2BIG) /* what fits is used */
		return 0;
	return !err || err == -ENOMEM ? err : -ENODATA;
}

/* Symbols that the file itself was stripped of. */
static int add_debug(struct lb_sym *sym, const struct lb_elf *elf,
		     const struct lb_proc *proc)
{
	int err = lb_debugfile_open(elf, proc, &sym->debug);

	if (!err)
		err = add_table(sym, sym->debug, ".symtab");
	if (!err || err == -ENOMEM)
		return err;
	err = lb_debugfile_unpack(elf, &sym->mini);
	if (!err)
		err = add_table(sym, sym->mini, ".symtab");
	return err == -ENOMEM ? err : 0;
}

static int compare(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->vaddr != y->vaddr)
		return x->vaddr < y->vaddr ? -1 : 1;
	if (!x->size != !y->size) /* one with a size is worth more */
		return x->size ? -1 : 1;
	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return strcmp(x->name, y->name);
}

static void sort(struct lb_sym *sym)
{
	size_t n = 0;

	if (!sym->n_entries)
		return;
	qsort(sym->entries, sym->n_entries, sizeof(*sym->entries), compare);
	for (size_t i = 0; i < sym->n_entries; i++) {
		if (!n || sym->entries[i].vaddr != sym->entries[n - 1].vaddr)
			sym->entries[n++] = sym->entries[i];
	}
	sym->n_entries = n;
}

int lb_sym_new(const struct lb_elf *elf, const struct lb_proc *proc,
	       struct lb_sym **sym_ret)
{
	struct lb_sym *sym = calloc(1, sizeof(*sym));
	int err;

	if (!sym)
		return -ENOMEM;
	err = add_table(sym, elf, ".symtab");
	if (err == -ENODATA)
		err = add_debug(sym, elf, proc);
	if (!err)
		err = add_table(sym, elf, ".dynsym");
	if (err == -ENOMEM) {
		lb_sym_free(sym);
		return err;
	}
	sort(sym);
	*sym_ret = sym;
	return 0;
}

void lb_sym_free(struct lb_sym *sym)
{
	if (!sym)
		return;
	for (size_t i = 0; i < sym->n_entries; i++)
		free(sym->entries[i].text);
	free(sym->entries);
	lb_elf_free(sym->debug);
	lb_elf_free(sym->mini);
	free(sym);
}

/* Number of entries that begin at or before @vaddr. */
static size_t entries_up_to(const struct lb_sym *sym, uint64_t vaddr)
{
	size_t low = 0, high = sym->n_entries;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (sym->entries[mid].vaddr <= vaddr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* The innermost symbol that covers @vaddr; one with a size goes first. */
static struct entry *find(struct lb_sym *sym, uint64_t vaddr, uint64_t limit)
{
	size_t n = entries_up_to(sym, vaddr);

	for (size_t i = n, k = 0; i-- > 0 && k < LOOK_BACK; k++) {
		struct entry *entry = &sym->entries[i];

		if (vaddr - entry->vaddr < entry->size)
			return entry;
	}
	if (n && !sym->entries[n - 1].size && vaddr < limit)
		return &sym->entries[n - 1];
	return NULL;
}

const char *lb_sym_find(struct lb_sym *sym, uint64_t vaddr, uint64_t limit,
			uint64_t *start_ret)
{
	struct entry *entry = find(sym, vaddr, limit);

	if (!entry)
		return NULL;
	if (!entry->text) {
		size_t size = strcspn(entry->name, "@"); /* no @VERSION */
		char *name = strndup(entry->name, size ? size : SIZE_MAX);

		entry->text = name ? lb_demangle(name) : NULL;
		free(name);
	}
	if (entry->text && start_ret)
		*start_ret = entry->vaddr;
	return entry->text;
}
