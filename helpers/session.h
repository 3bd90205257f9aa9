/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other parts of the public interface need of a run: its processes, its
 * records, its error text.
 */
#ifndef LB_SESSION_H
#define LB_SESSION_H

#include "drain.h"
#include "lb.h"
#include "object.h"
#include "subject.h"

/** Records of types that the session has no use for go to @fn. */
void lb_session_on_record(struct lb_session *session, lb_record_fn fn,
			  void *arg);
/** The newest process; more by its next, those that are gone too. */
struct lb_subject *lb_session_subjects(const struct lb_session *session);
/** The process that a record is about, or NULL. */
struct lb_subject *lb_session_subject(const struct lb_session *session,
				      uint32_t tgid);
/** Take a prototype's record. Return: 0, -ENOENT, -ENOMEM. */
int lb_session_add_proto(struct lb_session *session,
			 const struct lb_proto_rec *rec, uint32_t *id_ret);
/**
 * lb_session_scan() - walk the tables of a VM for names
 * Not again within a second, and not more often than is good for the tool.
 */
void lb_session_scan(struct lb_session *session, struct lb_subject *subject,
		     uint64_t g_addr, uint32_t vm);
/** Change enum lb_config_flag of a run under way. */
int lb_session_configure(struct lb_session *session, unsigned int flags);
/** Settings of the run. */
unsigned int lb_session_flags(const struct lb_session *session);
/** Set lb_session_error(); gives @err back. */
int lb_session_fail(struct lb_session *session, int err, const char *format,
		    ...) __attribute__((format(printf, 3, 4)));

#endif
