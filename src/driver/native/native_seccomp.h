/*
 * The system call filter of native places, as BPF programs. Compiled here, where libseccomp is, and
 * handed to the keeper, which has no library; once per kind for the life of the server.
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

/*
 * `base` and `exec` together refuse what `whole` refuses, with the same errors. Installing a filter
 * is dear, so base stands around all of a place from its birth, the relay included; exec is the
 * little that the relay must be allowed and a command must not.
 */
struct seccomp_filter {
	struct seccomp_program whole, base, exec;
};

int seccomp_compile(enum seccomp_kind kind, struct seccomp_filter *out, struct error *err);
void seccomp_filter_clear(struct seccomp_filter *filter);
