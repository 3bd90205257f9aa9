/* SPDX-License-Identifier: Apache-2.0 */
/* Maps and ring of a running BPF program; all loops over them are here. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "drain.h"

#define BATCH	65536
#define POLL_MS 20 /* names are read that soon, 50 times a second at most */

struct lb_drain {
	struct lb_map_fds fds;
	struct ring_buffer *ring;
	lb_record_fn fn;
	void *arg;
};

static int ring_record(void *ctx, void *data, size_t size)
{
	struct lb_drain *drain = ctx;

	drain->fn(drain->arg, data, size);
	return 0;
}

static int no_print(enum libbpf_print_level level, const char *format,
		    va_list args)
{
	(void)level;
	(void)format;
	(void)args;
	return 0;
}

/* A map of ours has the sizes of our structs, or it is not ours. */
static int map_check(int fd, uint32_t key_size, uint32_t value_size)
{
	struct bpf_map_info info = { 0 };
	uint32_t len = sizeof(info);

	if (bpf_obj_get_info_by_fd(fd, &info, &len))
		return -errno;
	if (info.key_size != key_size || info.value_size != value_size)
		return -EINVAL;
	return 0;
}

static int maps_check(const struct lb_map_fds *fds)
{
	const struct {
		int fd;
		uint32_t key_size;
		uint32_t value_size;
	} maps[] = {
		{ fds->rows, 4, sizeof(struct lb_row) },
		{ fds->blocks, 4, 4 },
		{ fds->rules, 4, sizeof(struct lb_rule) },
		{ fds->procs, 4, sizeof(struct lb_proc_entry) },
		{ fds->tids, 4, 4 },
		{ fds->unknown, 4, 8 },
		{ fds->counts, sizeof(struct lb_count_key), 8 },
		{ fds->config, 4, sizeof(struct lb_config) },
		{ fds->counters, 4, 8 },
		{ fds->ring, 0, 0 },
	};

	for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++) {
		int err = map_check(maps[i].fd, maps[i].key_size,
				    maps[i].value_size);

		if (err)
			return err;
	}
	return 0;
}

int lb_drain_new(const struct lb_map_fds *fds, lb_record_fn fn, void *arg,
		 struct lb_drain **drain_ret)
{
	int err = maps_check(fds);

	if (err)
		return err;
	struct lb_drain *drain = calloc(1, sizeof(*drain));

	if (!drain)
		return -ENOMEM;
	libbpf_set_print(no_print);
	drain->fn = fn;
	drain->arg = arg;
	int *to = (int *)&drain->fds;
	const int *from = (const int *)fds;

	memset(to, -1, sizeof(drain->fds));
	for (size_t i = 0; i < sizeof(*fds) / sizeof(int); i++) {
		to[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 0);
		if (to[i] < 0) {
			err = -errno;
			lb_drain_free(drain);
			return err;
		}
	}
	drain->ring =
		ring_buffer__new(drain->fds.ring, ring_record, drain, NULL);
	if (!drain->ring) {
		err = -errno;
		lb_drain_free(drain);
		return err;
	}
	*drain_ret = drain;
	return 0;
}

void lb_drain_free(struct lb_drain *drain)
{
	if (!drain)
		return;
	ring_buffer__free(drain->ring);
	int *fd = (int *)&drain->fds;

	for (size_t i = 0; i < sizeof(drain->fds) / sizeof(int); i++)
		lb_close_fd(&fd[i]);
	free(drain);
}

static int put_array(int fd, const void *data, size_t size, uint32_t from,
		     uint32_t to)
{
	_cleanup_free_ uint32_t *keys = malloc(BATCH * sizeof(*keys));

	if (!keys)
		return -ENOMEM;
	while (from < to) {
		uint32_t n = to - from < BATCH ? to - from : BATCH;
		uint32_t done = n;

		for (uint32_t i = 0; i < n; i++)
			keys[i] = from + i;
		if (bpf_map_update_batch(fd, keys,
					 (const char *)data + size * from,
					 &done, NULL))
			return -errno;
		from += n;
	}
	return 0;
}

int lb_drain_put_rows(struct lb_drain *drain, const struct lb_row *rows,
		      uint32_t from, uint32_t to)
{
	return put_array(drain->fds.rows, rows, sizeof(*rows), from, to);
}

int lb_drain_put_rules(struct lb_drain *drain, const struct lb_rule *rules,
		       uint32_t from, uint32_t to)
{
	return put_array(drain->fds.rules, rules, sizeof(*rules), from, to);
}

int lb_drain_put_blocks(struct lb_drain *drain, const uint32_t *blocks,
			uint32_t from, uint32_t to)
{
	return put_array(drain->fds.blocks, blocks, sizeof(*blocks), from, to);
}

int lb_drain_put_proc(struct lb_drain *drain, uint32_t tgid,
		      const struct lb_proc_entry *entry)
{
	if (bpf_map_update_elem(drain->fds.procs, &tgid, entry, BPF_ANY))
		return -errno;
	return 0;
}

int lb_drain_del_proc(struct lb_drain *drain, uint32_t tgid)
{
	if (bpf_map_delete_elem(drain->fds.procs, &tgid))
		return -errno;
	return 0;
}

int lb_drain_put_tid(struct lb_drain *drain, uint32_t tid)
{
	uint32_t one = 1;

	if (bpf_map_update_elem(drain->fds.tids, &tid, &one, BPF_ANY))
		return -errno;
	return 0;
}

int lb_drain_put_config(struct lb_drain *drain, const struct lb_config *config)
{
	uint32_t zero = 0;

	if (bpf_map_update_elem(drain->fds.config, &zero, config, BPF_ANY))
		return -errno;
	return 0;
}

uint64_t lb_drain_take_unknown(struct lb_drain *drain, uint32_t tgid)
{
	uint64_t n = 0;

	if (bpf_map_lookup_elem(drain->fds.unknown, &tgid, &n))
		return 0;
	bpf_map_delete_elem(drain->fds.unknown, &tgid);
	return n;
}

int lb_drain_poll(struct lb_drain *drain, int timeout_ms)
{
	int n;

	/* stacks and prototypes wake nobody up */
	do {
		int wait_ms = timeout_ms < POLL_MS ? timeout_ms : POLL_MS;

		n = ring_buffer__poll(drain->ring, wait_ms);
		if (n == -EINTR)
			return 0;
		if (n >= 0)
			n = ring_buffer__consume(drain->ring);
		timeout_ms -= wait_ms;
	} while (n >= 0 && timeout_ms > 0);
	return n < 0 && n != -EINTR ? n : 0;
}

int lb_drain_counts(struct lb_drain *drain, lb_count_fn fn, void *arg)
{
	struct lb_count_key key, next;
	const struct lb_count_key *at = NULL;
	uint64_t count;

	/* no sampling any more: nothing is deleted under our feet */
	while (!bpf_map_get_next_key(drain->fds.counts, at, &next)) {
		if (!bpf_map_lookup_elem(drain->fds.counts, &next, &count))
			fn(arg, &next, count);
		key = next;
		at = &key;
	}
	return errno == ENOENT ? 0 : -errno;
}

int lb_drain_counters(struct lb_drain *drain, uint64_t *counters_ret)
{
	int n_cpus = libbpf_num_possible_cpus();

	if (n_cpus <= 0)
		return n_cpus;
	_cleanup_free_ uint64_t *values = calloc(n_cpus, sizeof(*values));

	if (!values)
		return -ENOMEM;
	for (uint32_t i = 0; i < LB_CNT_MAX; i++) {
		if (bpf_map_lookup_elem(drain->fds.counters, &i, values))
			return -errno;
		counters_ret[i] = 0;
		for (int cpu = 0; cpu < n_cpus; cpu++)
			counters_ret[i] += values[cpu];
	}
	return 0;
}
