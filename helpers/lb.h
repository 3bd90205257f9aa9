/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public interface of libluabpf, the C core of lua-bpf-tools.
 *
 * Functions return 0 or -errno unless they say otherwise; a result goes through
 * the last parameter and is untouched on failure. The library never prints and
 * never exits; it reports through the log callback. A handle may be used by
 * one thread at a time, two handles by two threads.
 */
#ifndef LB_H
#define LB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LB_API __attribute__((visibility("default")))

struct lb_session;
struct lb_text;

enum lb_log_level {
	LB_LOG_ERROR = 0,
	LB_LOG_WARN,
	LB_LOG_INFO,
	LB_LOG_DEBUG,
};

/** Receives one line without a newline; @text is valid during the call. */
typedef void (*lb_log_fn)(void *arg, int level, const char *text);

#endif
