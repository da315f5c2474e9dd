#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/fd.h"
#include "base/log.h"
#include "http/trust.h"

#define DIAG_TIMEOUT_MS 1000
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#define ID_MAP_MAX 4096

static void put_address(const struct sockaddr_storage *from, __be32 address[4], __be16 *port)
{
	if (from->ss_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)from;

		memcpy(address, &in6->sin6_addr, sizeof(in6->sin6_addr));
		*port = in6->sin6_port;
	} else {
		const struct sockaddr_in *in = (const struct sockaddr_in *)from;

		memcpy(address, &in->sin_addr, sizeof(in->sin_addr));
		*port = in->sin_port;
	}
}

struct diag_request {
	struct nlmsghdr header;
	struct inet_diag_req_v2 diag;
};

static int ask_kernel(int netlink, const struct diag_request *request, uid_t *uid,
		      struct error *err)
{
	char answer[1024] __attribute__((aligned(NLMSG_ALIGNTO)));
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };

	if (sendto(netlink, request, sizeof(*request), 0, (struct sockaddr *)&kernel,
		   sizeof(kernel)) < 0)
		return error_errno(err, errno, "cannot ask the kernel about a socket");

	ssize_t n = recv(netlink, answer, sizeof(answer), 0);
	const struct nlmsghdr *header = (const struct nlmsghdr *)(const void *)answer;

	if (n < 0)
		return error_errno(err, errno, "the kernel does not answer about a socket");
	if (!NLMSG_OK(header, (size_t)n) || header->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
	    header->nlmsg_len < NLMSG_LENGTH(sizeof(struct inet_diag_msg)))
		return error_set(err, ERR_FORBIDDEN, "the peer's socket is not on this machine");

	const struct inet_diag_msg *found = NLMSG_DATA(header);

	/*
	 * A socket nobody holds any more (closed, waiting out its last state) is reported as uid 0
	 * with inode 0. Taking that for root would let any user in who closes fast enough.
	 */
	if (!found->idiag_inode)
		return error_set(err, ERR_FORBIDDEN, "the peer has closed its socket");
	*uid = found->idiag_uid;
	return 0;
}

/*
 * The peer of a loopback connection is a socket of this machine too: the one with our addresses
 * swapped. sock_diag knows who made it.
 */
static int tcp_peer_uid(int fd, uid_t *uid, struct error *err)
{
	struct sockaddr_storage peer = { 0 }, self = { 0 };
	socklen_t peer_len = sizeof(peer), self_len = sizeof(self);
	struct diag_request request = {
		.header = { .nlmsg_len = sizeof(request),
			    .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			    .nlmsg_flags = NLM_F_REQUEST },
		.diag = { .sdiag_protocol = IPPROTO_TCP,
			  .idiag_states = ~0U,
			  .id.idiag_cookie = { INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE } },
	};

	if (getpeername(fd, (struct sockaddr *)&peer, &peer_len) < 0 ||
	    getsockname(fd, (struct sockaddr *)&self, &self_len) < 0)
		return error_errno(err, errno, "cannot read the addresses of a connection");
	if (peer.ss_family != self.ss_family ||
	    (peer.ss_family != AF_INET && peer.ss_family != AF_INET6))
		return error_set(err, ERR_FORBIDDEN, "the peer has no address we know");
	request.diag.sdiag_family = (__u8)peer.ss_family;
	put_address(&peer, request.diag.id.idiag_src, &request.diag.id.idiag_sport);
	put_address(&self, request.diag.id.idiag_dst, &request.diag.id.idiag_dport);

	_cleanup_close_ int netlink =
		socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	struct timeval limit = { .tv_sec = DIAG_TIMEOUT_MS / 1000 };

	if (netlink < 0)
		return error_errno(err, errno, "cannot open a sock_diag socket");
	setsockopt(netlink, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return ask_kernel(netlink, &request, uid, err);
}

int peer_uid(int fd, uid_t *uid, struct error *err)
{
	int domain = 0;
	socklen_t len = sizeof(domain);

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0)
		return error_errno(err, errno, "cannot look at a connection");
	if (domain != AF_UNIX)
		return tcp_peer_uid(fd, uid, err);

	struct ucred cred;

	len = sizeof(cred);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return error_errno(err, errno, "cannot read the peer of a unix socket");
	*uid = cred.uid;
	return 0;
}

bool address_is_loopback(const struct sockaddr_storage *address)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;

	if (address->ss_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
	return address->ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

bool socket_is_of_this_machine(int fd)
{
	struct sockaddr_storage peer = { 0 }, self = { 0 };
	socklen_t peer_len = sizeof(peer), self_len = sizeof(self);

	if (getpeername(fd, (struct sockaddr *)&peer, &peer_len) < 0 ||
	    getsockname(fd, (struct sockaddr *)&self, &self_len) < 0)
		return false;
	return self.ss_family == AF_UNIX ||
	       (address_is_loopback(&peer) && address_is_loopback(&self));
}

/*
 * The process that connected, and its number. Linux 6.5 hands out the process itself; before, its
 * number could be a later process's by now: the caller asks right after accepting.
 */
static int peer_process(int fd, pid_t *pid, struct error *err)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	int process = -1;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return error_errno(err, errno, "cannot read the peer of a unix socket");
	/* A number of 0: its process namespace cannot be seen from here. */
	if (cred.pid <= 0)
		return error_set(err, ERR_FORBIDDEN, "the peer's process cannot be seen");
	len = sizeof(process);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &process, &len) < 0)
		process = errno == ENOPROTOOPT ? (int)syscall(SYS_pidfd_open, cred.pid, 0) : -1;
	if (process < 0)
		return error_errno(err, errno, "the peer's process cannot be opened");
	*pid = cred.pid;
	return process;
}

/* Whether it maps every uid to itself, as the first namespace of a machine does. */
static bool maps_everything(const char *path)
{
	_cleanup_buf_ struct buf text = { 0 };
	unsigned inside, outside, count;

	return file_read(AT_FDCWD, path, &text, ID_MAP_MAX, NULL) == 0 &&
	       sscanf(buf_str(&text), "%u %u %u", &inside, &outside, &count) == 3 && inside == 0 &&
	       outside == 0 && count == UINT32_MAX;
}

static bool namespaces_are_one(pid_t pid)
{
	struct stat own, theirs;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	if (stat("/proc/self/ns/user", &own) < 0)
		return false;
	if (stat(path, &theirs) == 0)
		return own.st_dev == theirs.st_dev && own.st_ino == theirs.st_ino;
	if (errno != EACCES)
		return false;
	/*
	 * Of another user's process, root's above all, an ordinary user may not see the namespace,
	 * only its table. One that maps everything to itself can be made by root alone.
	 */
	snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
	return maps_everything("/proc/self/uid_map") && maps_everything(path);
}

/*
 * Seen from outside, a process in a user namespace that somebody made has the uid of its maker. A
 * place of an ordinary user's server is one, so a uid alone does not tell it from that user.
 */
static bool peer_is_in_our_userns(int fd, struct error *err)
{
	pid_t pid;
	_cleanup_close_ int process = peer_process(fd, &pid, err);

	if (process < 0)
		return false;

	bool same = namespaces_are_one(pid);
	struct pollfd ended = { .fd = process, .events = POLLIN };

	/* While it lives its number is its own: it was that process that was looked at. */
	if (!same || poll(&ended, 1, 0) != 0)
		error_set(err, ERR_FORBIDDEN, "the peer is not in the server's user namespace");
	return same && ended.revents == 0;
}

bool peer_is_trusted(int fd)
{
	_cleanup_error_ struct error err = { 0 };
	struct sockaddr_storage self = { 0 };
	socklen_t len = sizeof(self);
	uid_t uid;

	if (!socket_is_of_this_machine(fd) || getsockname(fd, (struct sockaddr *)&self, &len) < 0)
		return false;

	bool known = peer_uid(fd, &uid, &err) == 0;
	bool trusted = known && (uid == 0 || uid == geteuid()) &&
		       (self.ss_family != AF_UNIX || peer_is_in_our_userns(fd, &err));

	if (err.code != ERR_NONE)
		log_debug("a peer is not trusted: %s", err.message);
	return trusted;
}
