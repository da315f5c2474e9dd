/*
 * The first words on a connection, before it becomes a link: connect, look who listens, prove and
 * have proven. Blocking, bounded by a deadline (boottime_ms); nothing here trusts a byte.
 */
#pragma once

#include "base/buf.h"
#include "base/error.h"
#include "wire/hello.h"

/*
 * Connects to the socket `path` below a directory, however long the directory's own path is, and
 * checks that its listener is ours. errnum ENOENT or ECONNREFUSED: nobody listens. ERR_FORBIDDEN:
 * somebody else does.
 */
int handshake_connect(int dirfd, const char *path, bool of_sandbox, int *fd, pid_t *pid,
		      struct error *err);

struct handshake {
	enum wire_error_code refusal; /* why the other side refused, or WERR_NONE */
	uint32_t version;
	uint64_t features;
	uint64_t absence_ms; /* relay */
	pid_t pid;
	uint32_t places;          /* keeper */
	char program_version[65]; /* keeper */
	struct buf early;         /* bytes that came behind the greeting */
};
void handshake_clear(struct handshake *g);
#define _cleanup_handshake_ _cleanup_(handshake_clear)

/* ERR_UNAUTHENTICATED: it does not hold the key, or says that we do not. */
int handshake_relay(int fd, const char *place_id, const uint8_t key[HELLO_KEY_SIZE], uint64_t epoch,
		    int64_t deadline, struct handshake *out, struct error *err);
/* ERR_PROTOCOL: no common version. */
int handshake_keeper(int fd, int64_t deadline, struct handshake *out, struct error *err);
