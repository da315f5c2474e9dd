/*
 * Who may talk to us without a token: processes of the server's own user and of root, asked of the
 * kernel, never of the peer. And where a browser may have been standing: only on our own pages.
 */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>
#include "base/error.h"

/* The uid that made the other end of a connected unix or loopback TCP socket. */
int peer_uid(int fd, uid_t *uid, struct error *err);
bool address_is_loopback(const struct sockaddr_storage *address);
/* A unix socket, or TCP with both ends on a loopback address. */
bool socket_is_of_this_machine(int fd);
/*
 * The server's own user or root, and over a unix socket in the server's own user namespace: what a
 * place connects to is not its user's. Over TCP the kernel tells the uid only; places that share
 * the host's network have uids of their own. False also when the peer cannot be told, has ended, or
 * has come over anything but that. Ask it soon after accepting.
 */
bool peer_is_trusted(int fd);

/*
 * A Host header is ours when it names a loopback address or localhost with our port, or a name the
 * operator allowed, so that a page of another site whose name resolves to us gets nowhere. An
 * Origin is ours when its host part is, over http or https.
 */
/*
 * An address instead of a name: no page can have made a browser ask for that by what a name
 * resolves to. For listeners beyond loopback, where it takes a token anyway.
 */
bool host_is_address(const char *host);
bool origin_is_same(const char *origin, const char *host);
bool host_is_ours(const char *host, int port, const char *const *allowed);
bool origin_is_ours(const char *origin, int port, const char *const *allowed);
