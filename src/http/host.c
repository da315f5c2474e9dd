#include <arpa/inet.h>
#include <strings.h>
#include "base/text.h"
#include "http/trust.h"

#define HOST_SIZE 256
#define PORT_HTTP 80
#define PORT_HTTPS 443

/* Cuts "name", "name:port" or "[address]:port" apart; false for anything else. */
static bool split_authority(const char *text, int default_port, char name[HOST_SIZE], int *port)
{
	const char *start = text, *end;
	int64_t number = default_port;

	if (*text == '[') {
		start++;
		end = strchr(start, ']');
		if (!end || (end[1] && end[1] != ':'))
			return false;
	} else {
		end = text + strcspn(text, ":");
	}

	size_t len = (size_t)(end - start);
	const char *rest = *text == '[' ? end + 1 : end;

	if (!len || len >= HOST_SIZE)
		return false;
	if (*rest && !parse_i64(rest + 1, 1, 65535, &number))
		return false;
	memcpy(name, start, len);
	name[len] = '\0';
	*port = (int)number;
	return true;
}

static bool is_loopback(const char *name)
{
	struct in_addr v4;
	struct in6_addr v6;

	if (strcasecmp(name, "localhost") == 0)
		return true;
	if (inet_pton(AF_INET, name, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	return inet_pton(AF_INET6, name, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

static bool has_port(const char *authority)
{
	const char *colon = strrchr(authority, ':');

	return colon && !strchr(colon, ']');
}

static bool authority_is_ours(const char *text, int default_port, int port,
			      const char *const *allowed)
{
	char name[HOST_SIZE];
	int named_port;

	if (!split_authority(text, default_port, name, &named_port))
		return false;
	/* A Host without a port means the scheme's own. */
	if (is_loopback(name))
		return port > 0 && (named_port == port || (port == PORT_HTTPS && !has_port(text)));
	for (size_t i = 0; allowed && allowed[i]; i++)
		if (strcasecmp(allowed[i], name) == 0)
			return true;
	return false;
}

bool host_is_address(const char *host)
{
	char name[HOST_SIZE];
	struct in_addr v4;
	struct in6_addr v6;
	int port;

	return split_authority(host, PORT_HTTP, name, &port) &&
	       (inet_pton(AF_INET, name, &v4) == 1 || inet_pton(AF_INET6, name, &v6) == 1);
}

bool origin_is_same(const char *origin, const char *host)
{
	const char *authority = strstr(origin, "://");

	return (str_starts(origin, "http://") || str_starts(origin, "https://")) &&
	       strcasecmp(authority + 3, host) == 0;
}

bool host_is_ours(const char *host, int port, const char *const *allowed)
{
	return authority_is_ours(host, PORT_HTTP, port, allowed);
}

bool origin_is_ours(const char *origin, int port, const char *const *allowed)
{
	static const char plain[] = "http://", secure[] = "https://";

	if (str_starts(origin, plain))
		return authority_is_ours(origin + sizeof(plain) - 1, PORT_HTTP, port, allowed);
	if (str_starts(origin, secure))
		return authority_is_ours(origin + sizeof(secure) - 1, PORT_HTTPS, port, allowed);
	return false;
}
