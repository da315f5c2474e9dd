/*
 * Errors: functions that can fail return 0 or a negative int and fill one `struct error`, always
 * the last parameter. The error is written once, where the cause is known, and wrapped with context
 * on the way up. `code` is stable and what programs look at; `message` is for people and never
 * carries a secret. `err` may be NULL everywhere.
 *
 * ERROR_CODES is the one table of codes: C name, wire string, HTTP status.
 */
#pragma once

#include <stdarg.h>
#include "base/mem.h"

#define ERROR_CODES(X)                                                                             \
	/* the request itself */                                                                   \
	X(ERR_INVALID_JSON, "invalid_json", 400)                                                   \
	X(ERR_VALIDATION, "validation_error", 400)                                                 \
	X(ERR_BAD_REQUEST, "bad_request", 400)                                                     \
	X(ERR_BAD_PATH, "bad_path", 400)                                                           \
	X(ERR_UNAUTHENTICATED, "unauthenticated", 401)                                             \
	X(ERR_FORBIDDEN, "forbidden", 403)                                                         \
	X(ERR_BAD_HOST, "host_not_allowed", 403)                                                   \
	X(ERR_BAD_ORIGIN, "origin_not_allowed", 403)                                               \
	X(ERR_NOT_FOUND, "not_found", 404)                                                         \
	X(ERR_METHOD, "method_not_allowed", 405)                                                   \
	X(ERR_CONFLICT, "conflict", 409)                                                           \
	X(ERR_TOO_LARGE, "payload_too_large", 413)                                                 \
	X(ERR_URI_TOO_LONG, "uri_too_long", 414)                                                   \
	X(ERR_MEDIA_TYPE, "unsupported_media_type", 415)                                           \
	X(ERR_UNPROCESSABLE, "unprocessable", 422)                                                 \
	X(ERR_TOO_MANY, "too_many_requests", 429)                                                  \
	/* places and leases */                                                                    \
	X(ERR_STALE_GENERATION, "lease_generation_stale", 409)                                     \
	X(ERR_LEASE_ENDED, "lease_not_active", 409)                                                \
	X(ERR_LEASE_PAUSED, "lease_paused", 409)                                                   \
	X(ERR_PLACE_BUSY, "place_busy", 409)                                                       \
	X(ERR_ENVIRONMENT_IN_USE, "environment_in_use", 409)                                       \
	X(ERR_IDEMPOTENCY, "idempotency_key_reused", 409)                                          \
	X(ERR_IDEMPOTENCY_BUSY, "idempotency_key_in_progress", 409)                                \
	X(ERR_RUN_STATE, "run_state_conflict", 409)                                                \
	X(ERR_QUEUE_FULL, "queue_full", 429)                                                       \
	/* a run's own errors, spec 01 E.1 and A.7 */                                              \
	X(ERR_ENV_NOT_FOUND, "environment_not_found", 404)                                         \
	X(ERR_ENV_INACTIVE, "environment_inactive", 409)                                           \
	X(ERR_LEASE_ACQUIRE, "lease_acquire_failed", 502)                                          \
	X(ERR_TRANSPORT, "transport_resolution_failed", 502)                                       \
	X(ERR_REALIZE, "workspace_realization_failed", 502)                                        \
	X(ERR_UNSUPPORTED_ENV, "unsupported_environment", 422)                                     \
	X(ERR_UNSUPPORTED_ADAPTER, "unsupported_adapter_environment", 422)                         \
	X(ERR_PROBE, "probe_failed", 502)                                                          \
	X(ERR_LEASE_RELEASE, "lease_release_failed", 502)                                          \
	X(ERR_LEASE_CLEANUP, "lease_cleanup_failed", 502)                                          \
	X(ERR_LEASE_LOST, "lease_lost", 409)                                                       \
	X(ERR_PROCESS_LOST, "process_lost", 500)                                                   \
	X(ERR_EXEC, "exec_failed", 500)                                                            \
	X(ERR_COMMAND_NOT_FOUND, "command_not_found", 422)                                         \
	X(ERR_COMMAND_DENIED, "command_not_executable", 422)                                       \
	X(ERR_CANCELLED, "cancelled", 409)                                                         \
	X(ERR_TIMEOUT, "timeout", 504)                                                             \
	X(ERR_AGENT_NOT_FOUND, "agent_not_found", 404)                                             \
	/* secrets and vaults */                                                                   \
	X(ERR_SECRET_NOT_BOUND, "secret_not_bound", 422)                                           \
	X(ERR_SECRET_INACTIVE, "secret_inactive", 422)                                             \
	X(ERR_SECRET_VERSION, "secret_version_unavailable", 422)                                   \
	X(ERR_SECRET_KEY_MISSING, "secret_key_missing", 503)                                       \
	X(ERR_SECRET_KEY_WRONG, "secret_key_wrong", 503)                                           \
	X(ERR_SECRET_CORRUPT, "secret_corrupt", 500)                                               \
	X(ERR_VAULT_UNUSABLE, "vault_unusable", 422)                                               \
	X(ERR_VAULT_DENIED, "vault_access_denied", 403)                                            \
	X(ERR_VAULT_NOT_FOUND, "vault_not_found", 404)                                             \
	X(ERR_VAULT_CONFLICT, "vault_conflict", 409)                                               \
	X(ERR_VAULT_THROTTLED, "vault_throttled", 429)                                             \
	X(ERR_VAULT_INVALID, "vault_invalid_request", 422)                                         \
	X(ERR_VAULT_UNAVAILABLE, "vault_unavailable", 503)                                         \
	X(ERR_VAULT, "vault_error", 502)                                                           \
	/* the machine */                                                                          \
	X(ERR_IO, "io_error", 500)                                                                 \
	X(ERR_DISK_FULL, "disk_full", 507)                                                         \
	X(ERR_DB, "database_error", 500)                                                           \
	X(ERR_DB_BUSY, "database_busy", 503)                                                       \
	X(ERR_DB_CONSTRAINT, "database_constraint", 409)                                           \
	X(ERR_DB_SCHEMA, "database_schema_mismatch", 500)                                          \
	X(ERR_LOCKED, "already_running", 409)                                                      \
	X(ERR_UNAVAILABLE, "unavailable", 503)                                                     \
	X(ERR_PROTOCOL, "protocol_error", 502)                                                     \
	X(ERR_FAULT, "fault_injected", 500)                                                        \
	X(ERR_INTERNAL, "internal_error", 500)

enum error_code {
	ERR_NONE = 0,
#define X(name, wire, http) name,
	ERROR_CODES(X)
#undef X
		ERR_COUNT
};

struct error {
	enum error_code code;
	char message[512];
	char *details; /* JSON text or NULL; owned, see error_clear */
	int errnum;    /* the errno behind it when error_errno made it, else 0 */
};

/* Each fills `err` (replacing what was there) and returns -1, so that callers can `return` it. */
int error_set(struct error *err, enum error_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int error_setv(struct error *err, enum error_code code, const char *fmt, va_list ap)
	__attribute__((format(printf, 3, 0)));
/* "<message>: <strerror>"; ENOSPC and EDQUOT become ERR_DISK_FULL, everything else ERR_IO. */
int error_errno(struct error *err, int errnum, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Puts "<context>: " before the message and keeps code and details. */
int error_wrap(struct error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Keeps message and details, replaces the code: for errors that change meaning at a boundary. */
int error_recode(struct error *err, enum error_code code);
/* Attaches JSON text; takes ownership. */
void error_set_details(struct error *err, char *json_text);

void error_clear(struct error *err);
void error_move(struct error *to, struct error *from);
#define _cleanup_error_ _cleanup_(error_clear)

const char *error_code_name(enum error_code code);
enum error_code error_code_from_name(const char *name); /* ERR_INTERNAL when unknown */
int error_http_status(enum error_code code);
