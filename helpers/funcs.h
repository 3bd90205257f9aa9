/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions and prototypes of one process, copied when a trace that has them
 * in its constants is: such a trace keeps them alive.
 */
#ifndef LB_FUNCS_H
#define LB_FUNCS_H

#include "names.h"
#include "proto.h"

/* A prototype; kept for the life of struct lb_funcs. */
struct lb_fproto {
	struct lb_proto proto;
	uint32_t id;	  /* in lb_names; 0: no room for its name */
	uint32_t checked; /* in this round it was found to be the same still */
	uint32_t lineinfo_off; /* in proto.data, 0 for none */
	uint64_t code;	       /* address of its bytecode */
};

struct lb_func {
	uint64_t addr;
	const struct lb_fproto *proto; /* NULL: a C or fast function */
	uint8_t ffid;
};

struct lb_funcs;

/** @names: gets a record for each prototype; kept by reference. */
int lb_funcs_new(struct lb_names *names, struct lb_funcs **funcs_ret);
void lb_funcs_free(struct lb_funcs *funcs);
/**
 * lb_funcs_round() - what follows is about one trace of one VM
 * @target: how to read; used until the next round
 * @vm: of lb_proc_entry.lj
 * What the rounds before have found is looked at again before it is used.
 */
void lb_funcs_round(struct lb_funcs *funcs, struct lb_target *target,
		    uint64_t g_addr, uint32_t vm);
/** The prototype at @addr, NULL if it cannot be had. */
const struct lb_fproto *lb_funcs_proto(struct lb_funcs *funcs, uint64_t addr);
/** The one whose bytecode holds @pc, if it has been copied; or NULL. */
const struct lb_fproto *lb_funcs_at(struct lb_funcs *funcs, uint64_t pc);
/** The function at @addr. Return: 0, -EBADMSG, or what reading gave. */
int lb_funcs_func(struct lb_funcs *funcs, uint64_t addr,
		  struct lb_func *func_ret);
/** Function that upvalue @index of @func holds now, 0 if it holds none. */
uint64_t lb_funcs_upvalue(struct lb_funcs *funcs, uint64_t func,
			  uint32_t index);
/**
 * lb_funcs_calculates() - may a fast function work on floating point numbers?
 * Return: false only when it is known by name that it does not.
 */
bool lb_funcs_calculates(struct lb_funcs *funcs, uint32_t ffid);
/** Source line of instruction @pos, LB_LINE_UNKNOWN. */
uint32_t lb_fproto_line(const struct lb_fproto *proto, uint32_t pos);

#endif
