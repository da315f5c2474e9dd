/*
 * Network namespaces that are used again. Making one and freeing it takes as long as all the other
 * walls of a place together, and most places never send a packet.
 *
 * A place must learn nothing of the one before it. A namespace is kept only when everybody in it is
 * dead, no socket is left, and everything the kernel counts in it reads like that of a namespace
 * nobody was in. The payload cannot change anything else there: it
 * has no capability, and the user namespace which that would be asked of is not even its own. An
 * ordinary user cannot enter it again and makes a new one every time.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/fd.h"
#include "keeper/keeper.h"

#define OWN_NET "/proc/self/ns/net"
#define COUNTS_MAX 32768u

/* What it counts, without what is the host's: sockstat has some of that behind its first line. */
static const char *const counts[] = { "dev", "snmp", "snmp6", "netstat" };
static const char no_sockets[] = "sockets: used 0\n";

/* Of the namespace this process is in. */
static bool read_counts(struct buf *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		_cleanup_error_ struct error err = { 0 };
		_cleanup_buf_ struct buf text = { 0 };
		char path[64];

		snprintf(path, sizeof(path), "/proc/self/net/%s", counts[i]);
		if (file_read(AT_FDCWD, path, &text, COUNTS_MAX, &err) == 0)
			buf_append(out, text.data, text.len);
		/* A kernel without IPv6 does not have them all, before as after. */
		else if (err.errnum != ENOENT)
			return false;
	}
	return out->len > 0;
}

static bool has_sockets(void)
{
	_cleanup_buf_ struct buf text = { 0 };

	return file_read(AT_FDCWD, "/proc/self/net/sockstat", &text, COUNTS_MAX, NULL) < 0 ||
	       strncmp(buf_str(&text), no_sockets, strlen(no_sockets)) != 0;
}

static void go_home(const struct keeper *keeper)
{
	if (setns(keeper->home_net_fd, CLONE_NEWNET) < 0)
		abort(); /* in a sandbox's network the keeper could not go on */
}

void net_start_keeping(struct keeper *keeper)
{
	keeper->home_net_fd = geteuid() == 0 ? open(OWN_NET, O_RDONLY | O_CLOEXEC) : -1;
}

/* Once, from one that is made for this. */
static bool know_unused(struct keeper *keeper)
{
	bool good;

	if (keeper->unused_counts.len > 0)
		return true;
	if (unshare(CLONE_NEWNET) < 0)
		return false;
	good = sandbox_raise_loopback(NULL) == 0 && read_counts(&keeper->unused_counts);
	go_home(keeper);
	if (!good)
		buf_reset(&keeper->unused_counts);
	return good;
}

int net_take(struct place *place)
{
	struct keeper *keeper = place->keeper;

	/* What the last places left was not looked at yet; making one takes longer. */
	if (keeper->net_count == 0)
		trash_give_nets(keeper);
	if (keeper->net_count == 0)
		return -1;
	place->net_fd = keeper->nets[--keeper->net_count];
	if (FAULT_HERE("keeper.net.taken", NULL) < 0)
		close_fdp(&place->net_fd);
	return place->net_fd;
}

/* The host's own is no place's, whatever wall was left out. */
static bool is_home(const struct keeper *keeper, int fd)
{
	struct stat home, it;

	return fstat(keeper->home_net_fd, &home) < 0 || fstat(fd, &it) < 0 ||
	       (home.st_ino == it.st_ino && home.st_dev == it.st_dev);
}

void net_note(struct place *place)
{
	struct keeper *keeper = place->keeper;
	char path[64];

	if (!(place->walls & WALL_BIT(WALL_NET_NS)) || place->net_fd >= 0 ||
	    keeper->home_net_fd < 0 || keeper->net_count == NETS_MAX)
		return;
	snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)place->pid);
	place->net_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (is_home(keeper, place->net_fd))
		close_fdp(&place->net_fd);
}

static bool is_like_new(struct keeper *keeper, int net_fd)
{
	_cleanup_buf_ struct buf now = { 0 };
	bool good;

	if (!know_unused(keeper) || setns(net_fd, CLONE_NEWNET) < 0)
		return false;
	good = !has_sockets() && read_counts(&now) && now.len == keeper->unused_counts.len &&
	       memcmp(now.data, keeper->unused_counts.data, now.len) == 0;
	go_home(keeper);
	return good;
}

void net_keep(struct keeper *keeper, int *net_fd)
{
	if (*net_fd >= 0 && keeper->net_count < NETS_MAX && is_like_new(keeper, *net_fd) &&
	    FAULT_HERE("keeper.net.keeping", NULL) == 0)
		keeper->nets[keeper->net_count++] = steal_fd(net_fd);
	close_fdp(net_fd);
}
