/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps and ring of a running BPF program: tables in, records and counts out.
 */
#ifndef LB_DRAIN_H
#define LB_DRAIN_H

#include <stddef.h>
#include <stdint.h>

#include "lb.h"
#include "../bpf_c/lb_wire.h"

struct lb_drain;

/** One record of the ring; @data is valid during the call. */
typedef void (*lb_record_fn)(void *arg, const void *data, size_t size);
/** One stack and leaf, and its samples. */
typedef void (*lb_count_fn)(void *arg, const struct lb_count_key *key,
			    uint64_t count);

/**
 * lb_drain_new() - take over the maps of a loaded program
 * @fds: duplicated; the caller still owns its own
 * Return: 0, -EINVAL (a map is missing or of another size), -ENOMEM, errno of
 * the kernel.
 */
int lb_drain_new(const struct lb_map_fds *fds, lb_record_fn fn, void *arg,
		 struct lb_drain **drain_ret);
void lb_drain_free(struct lb_drain *drain);

/** Write array entries [from, to) of @data. */
int lb_drain_put_rows(struct lb_drain *drain, const struct lb_row *rows,
		      uint32_t from, uint32_t to);
int lb_drain_put_rules(struct lb_drain *drain, const struct lb_rule *rules,
		       uint32_t from, uint32_t to);
int lb_drain_put_blocks(struct lb_drain *drain, const uint32_t *blocks,
			uint32_t from, uint32_t to);
/** -E2BIG when the map of processes is full. */
int lb_drain_put_proc(struct lb_drain *drain, uint32_t tgid,
		      const struct lb_proc_entry *entry);
int lb_drain_del_proc(struct lb_drain *drain, uint32_t tgid);
int lb_drain_put_tid(struct lb_drain *drain, uint32_t tid);
int lb_drain_put_config(struct lb_drain *drain, const struct lb_config *config);
/** Samples that @tgid got while it was not known; forgotten by this call. */
uint64_t lb_drain_take_unknown(struct lb_drain *drain, uint32_t tgid);

/** Wait up to @timeout_ms for records and hand over all there are. */
int lb_drain_poll(struct lb_drain *drain, int timeout_ms);
/** All counts. */
int lb_drain_counts(struct lb_drain *drain, lb_count_fn fn, void *arg);
/** Sum over CPUs of each counter; @counters_ret has LB_CNT_MAX entries. */
int lb_drain_counters(struct lb_drain *drain, uint64_t *counters_ret);

#endif
