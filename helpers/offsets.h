/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct lj_offsets of one file, from two sources that must agree: the table
 * entry whose marks equal those of the file's machine code, and the scan of
 * that code. A function of the file; knows no process.
 */
#ifndef LB_OFFSETS_H
#define LB_OFFSETS_H

#include <stdbool.h>

#include "luajit.h"
#include "scan.h"
#include "../bpf_c/lj_offsets.h"

/* Where the value of a field comes from. */
enum lb_offsets_from {
	LB_FROM_NONE = 0, /* not known: LJ_OFFSETS_NONE */
	LB_FROM_HEADER,	  /* the table of known builds */
	LB_FROM_SCAN,	  /* machine code */
	LB_FROM_BOTH,	  /* both, and they agree */
	LB_FROM_LAYOUT,	  /* so in all known builds; to be proven */
	LB_FROM_LIVE,	  /* the same, proven on a live process */
	LB_FROM_MAX
};

enum lb_offsets_problem {
	LB_OFFSETS_OK = 0,
	LB_OFFSETS_DIFFER,  /* the sources, on a field */
	LB_OFFSETS_MISSING, /* a field without which nothing works */
	LB_OFFSETS_OVERLAP, /* two members of a struct at one place */
};

/* Offsets with the source of each. */
struct lb_offsets_source {
	struct lj_offsets offsets;
	uint8_t from[LB_SCAN_N_FIELDS]; /* enum lb_offsets_from */
	const char *entry_name; /* of the table; NULL: none has its marks */
	int scan_err;		/* 0, or why its code was not read */
	enum lb_offsets_problem problem;
	size_t problem_field;
	size_t other_field;		   /* LB_OFFSETS_OVERLAP */
	uint32_t header_value, scan_value; /* that differ */
};

/**
 * lb_offsets_find() - offsets for a VM found in a file
 * @name_ret: name of the entry, static storage
 *
 * Where several entries have these marks, a field on which they disagree is
 * LJ_OFFSETS_NONE: it is not known for this file. That holds for the snapshots
 * and traces of LuaJIT 2.0, of which the VM's code shows nothing.
 * Return: 0, -ENOENT (no entry has these marks).
 */
int lb_offsets_find(const struct lb_luajit *luajit,
		    struct lj_offsets *offsets_ret, const char **name_ret);

/**
 * lb_offsets_choose() - offsets for a VM found in @elf, from all sources
 *
 * Of entries with equal marks those that the code contradicts are passed over;
 * the others count as in lb_offsets_find(). Without an entry the fields that
 * the code shows are taken. What neither knows follows the layout that all
 * known builds share (helpers/layout.h).
 * Return: 0, -ENOENT (@source_ret says why, see lb_offsets_explain()), -ENOMEM.
 */
int lb_offsets_choose(const struct lb_elf *elf, const struct lb_luajit *luajit,
		      struct lb_offsets_source *source_ret);

/**
 * lb_offsets_join() - the same from a scan that was made
 * @scan: NULL if the code was not understood
 */
int lb_offsets_join(const struct lb_luajit *luajit, const struct lb_scan *scan,
		    struct lb_offsets_source *source_ret);

/** Text of its problem: what was found, what is missing. */
void lb_offsets_explain(const struct lb_offsets_source *source, char *text,
			size_t size);

/**
 * lb_offsets_apart() - is @field at a place of its own in its struct?
 * @other_ret: the member that is at the same place, if not
 */
bool lb_offsets_apart(const struct lj_offsets *offsets, size_t field,
		      size_t *other_ret);

/** One word for an enum lb_offsets_from, static storage. */
const char *lb_offsets_from_word(unsigned int from);

/** Fields from one source: enum lb_offsets_from. */
size_t lb_offsets_count(const struct lb_offsets_source *source,
			unsigned int from);

/**
 * lb_offsets_entry() - one entry of the table, 0 and up
 * Return: 0, -ENOENT (behind the last).
 */
int lb_offsets_entry(size_t index, const struct lj_offsets **offsets_ret,
		     const char **name_ret);

/** lb_offsets_marks() - what the code of a build with these offsets shows */
struct lb_luajit lb_offsets_marks(const struct lj_offsets *offsets);

/** Are these equal in all that code shows of a build? */
bool lb_offsets_marks_equal(const struct lb_luajit *luajit,
			    const struct lj_offsets *offsets);

#endif
