/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proof of struct lj_offsets on a live VM: what must hold in the memory of each
 * LuaJIT, looked at through the offsets. The VM runs on meanwhile, so a look
 * may meet a change half made; only what fails each time has failed.
 */
#ifndef LB_PROOF_H
#define LB_PROOF_H

#include <stdbool.h>
#include <stdint.h>

#include "offsets.h"
#include "target.h"

enum lb_proof_check {
	LB_CHECK_CIRCLE = 0, /* G->cur_L->glref == G */
	LB_CHECK_MAIN,	     /* main thread: right below G */
	LB_CHECK_ENV,	     /* the globals are a table */
	LB_CHECK_STACK,	     /* stack <= base <= top <= maxstack; L in it */
	LB_CHECK_CFRAME,     /* the C frame has L */
	LB_CHECK_FRAMES,     /* the frames of a suspended L reach the bottom */
	LB_CHECK_STATE,	     /* vmstate, jit_base, state of the collector */
	LB_CHECK_REGISTRY,   /* a table with _LOADED */
	LB_CHECK_ROOTS,	     /* metamethod names, basic metatables */
	LB_CHECK_OBJECTS,    /* list of all objects */
	LB_CHECK_FUNCTION,   /* prototype, upvalues, environment */
	LB_CHECK_PROTO,	     /* its parts follow each other without a gap */
	LB_CHECK_DEBUG,	     /* and so do line table and names */
	LB_CHECK_LINES,	     /* lines of a function lie inside of its parent */
	LB_CHECK_MCODE,	     /* areas of machine code */
	LB_CHECK_TRACE,	     /* number, prototype, parts, machine code */
	LB_CHECK_SNAPSHOT,   /* maps follow each other */
	LB_CHECK_MAX
};

enum lb_proof_state {
	LB_PROOF_UNSEEN = 0, /* nothing there to look at */
	LB_PROOF_HELD,
	LB_PROOF_FAILED,
};

struct lb_proof {
	uint64_t g_addr;
	uint64_t main_l_addr;	       /* 0: not known */
	uint8_t states[LB_CHECK_MAX];  /* enum lb_proof_state */
	uint32_t n_held[LB_CHECK_MAX]; /* objects that were looked at */
	const char *why[LB_CHECK_MAX]; /* FAILED: what; static storage */
	uint64_t where[LB_CHECK_MAX];  /* and the address of the object */
};

/**
 * lb_proof_run() - look at the VM at @g_addr through the offsets of @source
 * @source: fields from LB_FROM_LAYOUT that held become LB_FROM_LIVE, those
 * that failed LB_FROM_NONE, some from LB_FROM_NONE are found
 *
 * Return: 0, -ENOENT (no VM there, now), -EBADMSG (it contradicts a field that
 * table or machine code gave: @proof_ret says where), -ENOMEM, -ESRCH. A check
 * that saw nothing does not fail.
 */
int lb_proof_run(lb_read_fn read, void *read_arg, uint64_t g_addr,
		 struct lb_offsets_source *source, struct lb_proof *proof_ret);

/** One line on the first check that failed. */
void lb_proof_explain(const struct lb_proof *proof, char *text, size_t size);

/** A few words on a check ("main thread"), static storage. */
const char *lb_proof_check_text(unsigned int check);

/**
 * lb_proof_fields() - fields that a check proves
 * Return: their indices in struct lj_offsets, *n_ret many; static storage.
 */
const uint8_t *lb_proof_fields(unsigned int check, size_t *n_ret);

#endif
