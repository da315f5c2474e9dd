#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include "base/fd.h"
#include "base/text.h"
#include "http/http.h"
#include "http/trust.h"

#define BACKLOG 1024

static int parse_address(const char *text, bool wide, struct sockaddr_storage *out, socklen_t *len,
			 struct error *err)
{
	const char *colon = strrchr(text, ':');
	struct sockaddr_in *v4 = (struct sockaddr_in *)out;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
	int64_t port;

	if (!colon || !parse_i64(colon + 1, 0, 65535, &port))
		return error_set(err, ERR_VALIDATION, "%s is not an address; use 127.0.0.1:PORT",
				 text);

	_cleanup_free_ char *host = xstrndup(text, (size_t)(colon - text));
	size_t host_len = strlen(host);

	*out = (struct sockaddr_storage){ 0 };
	if (host_len > 2 && host[0] == '[' && host[host_len - 1] == ']') {
		host[host_len - 1] = '\0';
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons((uint16_t)port);
		*len = sizeof(*v6);
		if (inet_pton(AF_INET6, host + 1, &v6->sin6_addr) == 1 &&
		    (wide || address_is_loopback(out)))
			return 0;
	} else {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)port);
		*len = sizeof(*v4);
		if (inet_pton(AF_INET, streq(host, "localhost") ? "127.0.0.1" : host,
			      &v4->sin_addr) == 1 &&
		    (wide || address_is_loopback(out)))
			return 0;
	}
	return error_set(
		err, ERR_VALIDATION,
		wide ? "%s is not an address; use 0.0.0.0:PORT, [::]:PORT or one of this machine's"
		     : "%s is not a loopback address: beyond this machine a server needs "
		       "--tls-cert and --tls-key (or --insecure-http)",
		text);
}

int http_bind(const char *address, bool wide, int *fd_out, int *port, struct error *err)
{
	struct sockaddr_storage name;
	socklen_t len;
	int on = 1;

	if (parse_address(address, wide, &name, &len, err) < 0)
		return -1;

	_cleanup_close_ int fd = socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    bind(fd, (struct sockaddr *)&name, len) < 0 || listen(fd, BACKLOG) < 0 ||
	    getsockname(fd, (struct sockaddr *)&name, &len) < 0)
		return error_errno(err, errno, "cannot listen on %s", address);
	*port = ntohs(name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&name)->sin6_port
						 : ((struct sockaddr_in *)&name)->sin_port);
	*fd_out = steal_fd(&fd);
	return 0;
}
