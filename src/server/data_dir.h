/*
 * The data directory as the server sees it: private, held by one server at a time, with the unix
 * socket people talk to.
 */
#pragma once

#include "base/clock.h"
#include "base/error.h"

/* Makes it if absent and keeps others out of it. ERR_FORBIDDEN when it belongs to somebody else. */
int data_open(const char *path, int *dirfd, struct error *err);
/* Held until the descriptor is closed. ERR_LOCKED says who holds it. */
int data_lock(int dirfd, const char *path, struct clock *clock, int *lock_fd, struct error *err);
/*
 * Keeps some room for the next start, where the disk has plenty: a server that finds the disk full
 * uses it, because its places end when none comes back to them. Again is fine.
 */
void data_keep_reserve(int dirfd);
/*
 * A listening socket at any path, for the owner only. What a dead server left there is replaced; a
 * living one is ERR_LOCKED.
 */
int socket_listen(const char *path, int *fd, struct error *err);
