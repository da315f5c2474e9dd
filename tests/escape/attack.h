/* What the attacker is told about the host, so that it need not guess. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define REPORT_FD 60 /* the only one that is meant to be open */

struct facts {
	const char *token;     /* written in every file that must not be read */
	const char *canary;    /* a host file with it, readable for everybody */
	const char *open_dir;  /* its directory, writable for everybody */
	const char *data;      /* Berth's data directory */
	const char *neighbour; /* path in the data directory of another place's file */
	const char *abstract;  /* name of an abstract socket that is listened to */
	const char *service;   /* path of a socket of the host in a directory that is shared */
	const char *hostname;
	long host_pid, shm_key, port, uid; /* uid: what the payload should be; -1: not told */
};

/* How an attack went, for people. */
void said(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The file holds the token. */
bool has_token(const struct facts *f, int dir, const char *path);
/* The call came through: neither refused nor unknown. */
bool came_through(long result);

#define X(name, about, function) bool function(const struct facts *f);
#include "cases.h"
CASES(X)
#undef X
