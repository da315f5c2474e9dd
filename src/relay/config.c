#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "relay/relay.h"
#include "wire/place.h"

#define CONFIG_MAX 32768u

static int config_check(const struct wire_relay_config *m, struct error *err)
{
	if (m->place_id[0] == 0)
		return error_set(err, ERR_VALIDATION, "the place has no id");
	if (m->absence_ms < PLACE_ABSENCE_MIN_MS || m->absence_ms > PLACE_ABSENCE_MAX_MS)
		return error_set(err, ERR_VALIDATION, "the absence TTL is out of range");
	if (m->ring_max < PLACE_RING_MIN || m->ring_max > PLACE_RING_MAX || m->max_execs == 0)
		return error_set(err, ERR_VALIDATION, "a limit is out of range");
	if (m->seccomp.len % 8 != 0 || (m->seccomp.len > 0 && !m->confine))
		return error_set(err, ERR_VALIDATION, "the seccomp filter cannot be used");
	if (m->run_as && geteuid() != 0 && m->uid != geteuid())
		return error_set(err, ERR_VALIDATION, "only root can run as another user");
	return 0;
}

/* One descriptor may come along, if this is a socket. */
static ssize_t read_some(int fd, void *data, size_t len, int *handed)
{
	int fds[1];
	size_t count = 1;
	ssize_t n = fd_recv_with(fd, data, len, fds, &count, 0);

	if (n < 0 && errno == ENOTSOCK)
		return read(fd, data, len);
	if (count > 0) {
		close_fdp(handed);
		*handed = fds[0];
	}
	return n;
}

/* One frame, and nothing behind it: the starter's end of the socket need not be waited for. */
static int read_frame(int fd, uint8_t *bytes, size_t size, struct frame *frame, int *handed,
		      struct error *err)
{
	size_t len = 0, used = 0;
	int r = 0;

	while (r == 0 && len < size) {
		ssize_t n = read_some(fd, bytes + len, size - len, handed);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "read");
		if (n == 0)
			break;
		len += (size_t)n;
		r = frame_parse(bytes, len, CONFIG_MAX, frame, &used, err);
	}
	if (r < 0)
		return -1;
	if (r == 0 || used != len || frame->type != WIRE_RELAY_CONFIG)
		return error_set(err, ERR_PROTOCOL, "the config is not one config frame");
	return 0;
}

int config_read(struct config *config, int fd, struct user_tables *tables, int *handed,
		struct error *err)
{
	uint8_t bytes[CONFIG_MAX + WIRE_HEADER_SIZE];
	_cleanup_wire_message_ struct wire_message m = { 0 };
	struct frame frame;

	*handed = -1;
	if (read_frame(fd, bytes, sizeof(bytes), &frame, handed, err) < 0 ||
	    wire_decode(&frame, &m, err) < 0 || config_check(&m.relay_config, err) < 0)
		return -1;
	*config = (struct config){
		.place_id = xstrdup(m.relay_config.place_id),
		.absence_ms = m.relay_config.absence_ms,
		.whole_host = m.relay_config.whole_host,
		.cwd = xstrdup(m.relay_config.cwd),
		.run_as = m.relay_config.run_as,
		.confine = m.relay_config.confine,
		.ring_max = m.relay_config.ring_max,
		.max_execs = m.relay_config.max_execs,
		.has_cgroup = m.relay_config.has_cgroup,
		.open_files = m.relay_config.open_files,
		.limit_fds = m.relay_config.limit_fds,
		.seccomp_len = m.relay_config.seccomp.len,
	};
	if (config->seccomp_len > 0) {
		config->seccomp = xmalloc(config->seccomp_len);
		memcpy(config->seccomp, m.relay_config.seccomp.data, config->seccomp_len);
	}
	memcpy(config->key, m.relay_config.key, sizeof(config->key));
	if (config->run_as)
		user_of_ids(tables, m.relay_config.uid, m.relay_config.gid, &config->payload);
	else
		user_of_ids(tables, geteuid(), getegid(), &config->payload);
	wipe(&m.relay_config, sizeof(m.relay_config));
	wipe(bytes, WIRE_HEADER_SIZE + frame.length);
	return 0;
}
