#include "client.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text.h"
#include "bench.h"

void client_open(struct client *c, const char *socket_path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	*c = (struct client){ .fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) };
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket_path);
	if (connect(c->fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		close(c->fd);
		c->fd = -1;
	}
}

void client_close(struct client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	buf_free(&c->in);
	c->fd = -1;
}

static bool fill(struct client *c)
{
	ssize_t n;

	buf_reserve(&c->in, 65536);
	n = read(c->fd, c->in.data + c->in.len, 65536);
	if (n <= 0)
		return false;
	c->in.len += (size_t)n;
	c->in.data[c->in.len] = 0;
	return true;
}

int client_call(struct client *c, const char *method, const char *path, const char *json,
		const char **body)
{
	_cleanup_buf_ struct buf out = { 0 };
	size_t head, length = 0;
	char *end, *field;
	int status;

	buf_printf(&out, "%s %s HTTP/1.1\r\nHost: localhost\r\n", method, path);
	if (json)
		buf_printf(&out, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
			   strlen(json));
	buf_printf(&out, "\r\n%s", json ? json : "");
	if (write(c->fd, out.data, out.len) != (ssize_t)out.len)
		return -1;
	buf_reset(&c->in);
	while (!c->in.data || !(end = strstr(c->in.data, "\r\n\r\n"))) {
		if (!fill(c))
			return -1;
	}
	head = (size_t)(end - c->in.data) + 4;
	field = strcasestr(c->in.data, "\r\ncontent-length:");
	if (field && field < c->in.data + head)
		length = (size_t)strtoul(field + 17, NULL, 10);
	while (c->in.len < head + length) {
		if (!fill(c))
			return -1;
	}
	if (sscanf(c->in.data, "HTTP/1.1 %d", &status) != 1)
		return -1;
	if (body)
		*body = c->in.data + head;
	return status;
}

json_t *client_json(struct client *c, const char *method, const char *path, const char *json,
		    int want)
{
	const char *body = NULL;
	int status = client_call(c, method, path, json, &body);
	json_t *value;

	if (status != want)
		bench_fail("%s %s: status %d instead of %d: %s", method, path, status, want,
			   body ? body : "");
	value = json_loads(body, JSON_DECODE_ANY, NULL);
	if (!value)
		bench_fail("%s %s: not JSON: %s", method, path, body);
	return value;
}

void client_setup_fake(struct client *c, bool reuse, char environment_id[40], char company_id[40])
{
	json_t *company = client_json(c, "POST", "/api/companies", "{\"name\":\"bench\"}", 201);
	_cleanup_free_ char *path = NULL, *body = NULL;
	json_t *environment;

	snprintf(company_id, 40, "%s", json_str(company, "id"));
	path = xasprintf("/api/companies/%s/environments", company_id);
	body = xasprintf(
		"{\"name\":\"fake\",\"driver\":\"sandbox\",\"config\":{\"provider\":\"fake\","
		"\"image\":\"bench\",\"reuseLease\":%s}}",
		reuse ? "true" : "false");
	environment = client_json(c, "POST", path, body, 201);
	snprintf(environment_id, 40, "%s", json_str(environment, "id"));
	json_decref(company);
	json_decref(environment);
}

void client_acquire_local(struct client *c, char lease_id[160])
{
	json_t *company = client_json(c, "POST", "/api/companies", "{\"name\":\"bench\"}", 201);
	_cleanup_free_ char *list =
		xasprintf("/api/companies/%s/environments", json_str(company, "id"));
	json_t *environments = client_json(c, "GET", list, NULL, 200);
	_cleanup_free_ char *path = xasprintf("/api/environments/%s/leases",
					      json_str(json_array_get(environments, 0), "id"));
	json_t *lease = client_json(c, "POST", path, "{}", 201);

	snprintf(lease_id, 160, "%s", json_str(lease, "id"));
	json_decref(company);
	json_decref(environments);
	json_decref(lease);
}

void client_release(struct client *c, const char *lease_id)
{
	_cleanup_free_ char *path = xasprintf("/api/environment-leases/%s/release", lease_id);

	json_decref(client_json(c, "POST", path, "{}", 200));
}

long long client_drain(const char *socket_path, const char *path, long *peak_kb, int server)
{
	static char buffer[1 << 18];
	struct client c;
	long long total = 0;
	double look = 0;
	ssize_t n;

	client_open(&c, socket_path);
	dprintf(c.fd,
		"GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: application/octet-stream\r\n"
		"Connection: close\r\n\r\n",
		path);
	while ((n = read(c.fd, buffer, sizeof(buffer))) > 0) {
		total += n;
		if (bench_now() - look > 0.2) {
			long kb = bench_memory_kb(server);

			*peak_kb = kb > *peak_kb ? kb : *peak_kb;
			look = bench_now();
		}
	}
	client_close(&c);
	return total;
}
