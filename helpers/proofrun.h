/* SPDX-License-Identifier: Apache-2.0 */
/* One look at a live VM: what the parts of the proof share. */
#ifndef LB_PROOFRUN_H
#define LB_PROOFRUN_H

#include "proof.h"

#define LB_PROOF_THREADS 16
#define LB_PROOF_FUNCS	 64
#define LB_PROOF_PROTOS	 64
#define LB_PROOF_G_SIZE	 2048 /* bytes of global_State, all builds: 840 */
#define LB_PROOF_TRACE	 9    /* type of a trace in object headers */

struct lb_proof_list {
	uint64_t addrs[LB_PROOF_FUNCS];
	size_t n, max;
};

struct lb_proof_run {
	struct lb_target target; /* off: &off below */
	struct lj_offsets off;
	const uint8_t *from; /* enum lb_offsets_from of each field */
	bool found[LB_SCAN_N_FIELDS];
	uint64_t g_addr;
	uint64_t main_l, cur_l;
	uint8_t g[LB_PROOF_G_SIZE];
	size_t g_size;
	struct lb_proof_list threads, funcs, protos;
	uint32_t held[LB_CHECK_MAX], failed[LB_CHECK_MAX];
	const char *why[LB_CHECK_MAX];
	uint64_t where[LB_CHECK_MAX];
};

/** An object was looked at: it is as it should be, or not, for @why. */
bool lb_proof_note(struct lb_proof_run *run, unsigned int check, bool held,
		   const char *why, uint64_t addr);
/** A field was found by a search. */
void lb_proof_find(struct lb_proof_run *run, size_t field, uint32_t value);

#define LB_HAS(run, name) ((run)->off.name != LJ_OFFSETS_NONE)
#define LB_FIND(run, name, value) \
	lb_proof_find(run, LB_SCAN_FIELD(name), (uint32_t)(value))

/* Values at an offset in bytes that were read. */
uint16_t lb_proof_u16(const uint8_t *data, uint32_t off);
uint32_t lb_proof_u32(const uint8_t *data, uint32_t off);
uint64_t lb_proof_u64(const uint8_t *data, uint32_t off);

/** Target memory into @buf; false if it is not there. */
bool lb_proof_read(struct lb_proof_run *run, uint64_t addr, void *buf,
		   size_t size);
/** A reference in target memory, 0 if it is not there. */
uint64_t lb_proof_ref(struct lb_proof_run *run, uint64_t addr);
/** Is there an object of @type at @addr? */
bool lb_proof_is(struct lb_proof_run *run, uint64_t addr, unsigned int type);
/** A string with its text ending where it says; @text NULL: any. */
bool lb_proof_is_str(struct lb_proof_run *run, uint64_t addr, const char *text);
/** A thread of this VM. */
bool lb_proof_is_thread(struct lb_proof_run *run, uint64_t addr);
void lb_proof_add(struct lb_proof_list *list, uint64_t addr);

/** Return: false if there is no VM now. */
bool lb_proof_globals(struct lb_proof_run *run);
void lb_proof_threads(struct lb_proof_run *run);
void lb_proof_objects(struct lb_proof_run *run);
void lb_proof_protos(struct lb_proof_run *run);
void lb_proof_traces(struct lb_proof_run *run);

#endif
