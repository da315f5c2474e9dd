#include "attack.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

bool by_host_name(const struct facts *f)
{
	char name[256] = { 0 };

	gethostname(name, sizeof(name) - 1);
	if (f->hostname[0] && strcmp(name, f->hostname) == 0) {
		said("it is %s", name);
		return true;
	}
	return sethostname("changed", 7) == 0;
}

bool by_shared_memory(const struct facts *f)
{
	if (shmget((key_t)f->shm_key, 0, 0) < 0 && errno == ENOENT)
		return false;
	said("a segment of the host is there");
	return true;
}

bool by_host_loopback(const struct facts *f)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)f->port) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)f->port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd6 = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (connect(fd, (struct sockaddr *)&v4, sizeof(v4)) == 0) {
		said("127.0.0.1:%ld answers", f->port);
		return true;
	}
	inet_pton(AF_INET6, "::ffff:127.0.0.1", &v6.sin6_addr);
	if (connect(fd6, (struct sockaddr *)&v6, sizeof(v6)) == 0) {
		said("[::ffff:127.0.0.1]:%ld answers", f->port);
		return true;
	}
	inet_pton(AF_INET, "169.254.169.254", &v4.sin_addr);
	v4.sin_port = htons(80);
	return connect(fd, (struct sockaddr *)&v4, sizeof(v4)) == 0 || errno != ENETUNREACH;
}

bool by_interfaces(const struct facts *f)
{
	(void)f;
	for (struct if_nameindex *i = if_nameindex(); i && i->if_index; i++) {
		if (strcmp(i->if_name, "lo") != 0) {
			said("%s", i->if_name);
			return true;
		}
	}
	return false;
}

bool by_shared_socket(const struct facts *f)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(address.sun_path, f->service, strnlen(f->service, sizeof(address.sun_path) - 1));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return false;
	said("%s answers", f->service);
	return true;
}

bool by_abstract_socket(const struct facts *f)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	size_t len = strnlen(f->abstract, sizeof(address.sun_path) - 2);

	memcpy(address.sun_path + 1, f->abstract, len);
	if (connect(fd, (struct sockaddr *)&address,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)) < 0)
		return false;
	said("@%s answers", f->abstract);
	return true;
}

static bool answers(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return false;
	said("%s answers", path);
	return true;
}

bool by_path_socket(const struct facts *f)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/berth.sock", f->data);
	if (answers(path))
		return true;
	snprintf(path, sizeof(path), "%s/sock", f->open_dir);
	return answers(path) || answers("/run/docker.sock") ||
	       answers("/run/dbus/system_bus_socket");
}

bool by_odd_sockets(const struct facts *f)
{
	static const struct {
		int family, type, protocol;
		const char *what;
	} sockets[] = { { AF_INET, SOCK_RAW, IPPROTO_ICMP, "raw" },
			{ AF_PACKET, SOCK_RAW, 0x0300, "packet" },
			{ 40, SOCK_STREAM, 0, "vsock" },
			{ 38, SOCK_SEQPACKET, 0, "kernel crypto" },
			{ AF_NETLINK, SOCK_RAW, 12, "netfilter netlink" },
			{ AF_NETLINK, SOCK_RAW, 9, "audit netlink" },
			{ AF_NETLINK, SOCK_RAW, 15, "uevent netlink" },
			{ 31, SOCK_RAW, 1, "bluetooth" },
			{ 29, SOCK_RAW, 1, "CAN" },
			{ 44, SOCK_RAW, 0, "XDP" } };

	(void)f;
	for (size_t i = 0; i < sizeof(sockets) / sizeof(sockets[0]); i++) {
		if (socket(sockets[i].family, sockets[i].type, sockets[i].protocol) >= 0) {
			said("%s", sockets[i].what);
			return true;
		}
	}
	return false;
}

bool by_netfilter(const struct facts *f)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char table[128] = { 0 };

	(void)f;
	/* IPT_SO_SET_REPLACE, the call of CVE-2016-3135. */
	return setsockopt(fd, IPPROTO_IP, 64, table, sizeof(table)) == 0 ||
	       (errno != EPERM && errno != ENOPROTOOPT);
}
