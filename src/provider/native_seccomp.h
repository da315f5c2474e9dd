/*
 * The system call filter of native places, as a BPF program. Compiled here, where libseccomp is,
 * and handed to the relay, which has no library; once per kind for the life of the server.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"

enum seccomp_kind {
	SECCOMP_PLAIN,
	SECCOMP_SHARED, /* host directories are writable: no set-user-id files are made either */
	SECCOMP_KINDS,
};

struct seccomp_program {
	void *data;
	size_t len;
};

/* Owned by the caller. */
int seccomp_compile(enum seccomp_kind kind, struct seccomp_program *out, struct error *err);
