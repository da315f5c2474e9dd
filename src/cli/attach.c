#include "cli/attach.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "cli/follow.h"
#include "cli/terminal.h"
#include "cli/cli.h"
#include "http/websocket.h"

#define KEYS_BYTES 4096
#define QUEUE_BYTES ((size_t)64 << 10)
#define MESSAGE_BYTES ((size_t)1 << 20)
#define PING_MS 20000
#define SILENCE_MS 60000
#define BACK_SECONDS 60
#define SUPERVISED_SECONDS 3
#define CTRL_P 0x10
#define CTRL_Q 0x11

struct seat {
	struct attach *attach;
	struct websocket *ws;
	int size_fd;
	bool held_p; /* ctrl-p came: what follows says what it means */
	bool input_ended;
	bool output_gone; /* nobody sees it any more */
	bool arrived;     /* at least once */
	int64_t pinged;
};

static void say(struct seat *seat, json_t *message)
{
	_cleanup_free_ char *text = json_text(message);

	websocket_send(seat->ws, WEBSOCKET_TEXT, text, strlen(text));
	json_decref(message);
}

static json_t *message_of(const char *type)
{
	json_t *message = json_object();

	json_put_str(message, "type", type);
	return message;
}

static void say_size(struct seat *seat)
{
	json_t *message = message_of("resize");
	uint16_t rows, cols;

	terminal_size(&rows, &cols);
	json_put_int(message, "rows", rows);
	json_put_int(message, "cols", cols);
	say(seat, message);
}

static void take_message(void *arg, enum websocket_type type, const char *data, size_t len)
{
	struct seat *seat = arg;
	struct attach *attach = seat->attach;
	_cleanup_json_ json_t *message = NULL;

	if (type == WEBSOCKET_BINARY) {
		attach->since += (int64_t)len;
		if (fd_write_all(STDOUT_FILENO, data, len, NULL) < 0)
			seat->output_gone = true;
		return;
	}
	message = json_parse(data, len, NULL);
	if (str_equal(json_str(message, "type"), "attached"))
		attach->since = json_int(message, "offset", attach->since);
	else if (str_equal(json_str(message, "type"), "exit"))
		attach->exit = json_incref(message);
}

/* Keys as they are, but for the two that leave. False when they came. */
static bool send_keys(struct seat *seat, const char *keys, size_t len)
{
	_cleanup_buf_ struct buf out = { 0 };

	for (size_t i = 0; i < len; i++) {
		if (seat->held_p && keys[i] == CTRL_Q)
			return false;
		if (seat->held_p)
			buf_putc(&out, CTRL_P);
		seat->held_p = keys[i] == CTRL_P;
		if (!seat->held_p)
			buf_putc(&out, keys[i]);
	}
	if (out.len)
		websocket_send(seat->ws, WEBSOCKET_BINARY, out.data, out.len);
	return true;
}

static bool take_keys(struct seat *seat)
{
	char keys[KEYS_BYTES];
	ssize_t n = read(STDIN_FILENO, keys, sizeof(keys));

	if (n > 0)
		return send_keys(seat, keys, (size_t)n);
	if (n == 0 || errno != EINTR)
		seat->input_ended = true;
	return true;
}

static bool keep_alive(struct seat *seat)
{
	int64_t now = boottime_ms(), heard = websocket_heard(seat->ws);

	if (now - heard > SILENCE_MS)
		return false;
	if (now - MAX_OF(heard, seat->pinged) >= PING_MS) {
		websocket_ping(seat->ws);
		seat->pinged = now;
	}
	return true;
}

/* Until the connection is over or somebody leaves. */
static void converse(struct seat *seat, int fd)
{
	for (;;) {
		bool takes_keys = !seat->input_ended && websocket_queued(seat->ws) < QUEUE_BYTES;
		struct pollfd fds[] = {
			{ .fd = fd, .events = websocket_events(seat->ws, true) },
			{ .fd = takes_keys ? STDIN_FILENO : -1, .events = POLLIN },
			{ .fd = seat->size_fd, .events = POLLIN },
		};
		int timeout = websocket_has_early(seat->ws) ? 0 : PING_MS;

		if (poll(fds, ARRAY_SIZE(fds), timeout) < 0 && errno != EINTR)
			return;
		/* After a close nothing can be sent: whether one came is to be known before a key
		 * is read, which otherwise waits for the next connection. */
		if (!websocket_step(seat->ws, true) || seat->output_gone || !keep_alive(seat))
			return;
		if (fds[2].revents) {
			latch_clear(seat->size_fd);
			say_size(seat);
		}
		if (fds[1].revents && !take_keys(seat)) {
			seat->attach->left = true;
			say(seat, message_of("detach"));
			websocket_close(seat->ws, 1000, "detached", 1000);
			return;
		}
		if (!websocket_step(seat->ws, false))
			return;
	}
}

/* One connection. 0: over for good, 1: it was lost, -1. */
static int sit_once(struct seat *seat, struct error *err)
{
	struct attach *attach = seat->attach;
	_cleanup_close_ int fd = -1;
	_cleanup_buf_ struct buf early = { 0 };
	_cleanup_free_ char *path =
		xasprintf("/api/execs/%s/terminal?since=%lld%s", attach->exec_id,
			  (long long)attach->since, attach->alone ? "&exclusive=1" : "");

	if (api_websocket(attach->api, path, &fd, &early, err) < 0)
		return err->code == ERR_UNAVAILABLE ||
				       (err->code == ERR_RUN_STATE && attach->is_run)
			       ? 1
			       : -1;

	const struct websocket_options options = {
		.fd = fd,
		.early = early.data,
		.early_len = early.len,
		.max_message = MESSAGE_BYTES,
		.message = take_message,
		.arg = seat,
	};
	_cleanup_websocket_ struct websocket *ws = websocket_new(&options);

	seat->ws = ws;
	seat->arrived = true;
	say_size(seat);
	converse(seat, fd);
	seat->ws = NULL;
	if (attach->left || attach->exit || seat->output_gone)
		return 0;

	uint16_t code = websocket_close_code(ws);

	/* 1001: the server stops, and another one may come; 1006: it said nothing. */
	if (code == 1001 || code == 1006)
		return 1;
	snprintf(attach->why, sizeof(attach->why), "%s", websocket_close_reason(ws));
	return 0;
}

/* Whoever looks after the server gets the first try. */
static int find_server(struct attach *attach, int64_t deadline, struct error *err)
{
	bool late = boottime_ms() > deadline - (BACK_SECONDS - SUPERVISED_SECONDS) * 1000;
	struct api *fresh = NULL;

	if (api_connect(attach->cli, attach->may_start && late, &fresh, err) < 0)
		return -1;
	api_close(attach->api);
	attach->api = fresh;
	return 0;
}

int attach_terminal(struct attach *attach, struct error *err)
{
	struct seat seat = { .attach = attach, .size_fd = terminal_watch_size() };
	int64_t deadline = boottime_ms() + BACK_SECONDS * 1000;
	int r;

	if (!terminal_raw())
		return error_set(err, ERR_BAD_REQUEST, "standard input is not a terminal");
	seat.pinged = boottime_ms();
	while ((r = sit_once(&seat, err)) > 0) {
		struct pollfd pause = { .fd = -1 };
		bool waits = err->code == ERR_RUN_STATE;

		if (seat.arrived) {
			deadline = boottime_ms() + BACK_SECONDS * 1000;
			seat.arrived = false;
		}
		if (!waits && boottime_ms() > deadline) {
			r = -1;
			break;
		}
		error_clear(err);
		poll(&pause, 1, waits ? 20 : 100);
		if (!waits && find_server(attach, deadline, err) < 0 && boottime_ms() > deadline) {
			r = -1;
			break;
		}
	}
	terminal_restore();
	return r < 0 ? -1 : 0;
}

int attach_finish(struct cli *cli, struct attach *attach)
{
	_cleanup_json_ json_t *end = steal(attach->exit);

	if (attach->left) {
		fprintf(stderr, "\r\nberth: left %s; `berth attach %s` comes back to it\n",
			attach->exec_id, attach->exec_id);
		return 0;
	}
	if (!end) {
		fprintf(stderr, "\r\nberth: %s\n",
			str_equal(attach->why, "replaced") ? "somebody else has taken the terminal"
							   : "the terminal was closed");
		return EXIT_BERTH;
	}
	if (json_str(end, "error") && !cli->quiet) {
		fputs("berth: ", stderr);
		print_cell(stderr, json_str(end, "error"));
		fputc('\n', stderr);
	}
	if (cli->json) {
		_cleanup_free_ char *text = json_text(end);

		puts(text);
	}
	return exit_code_of(end);
}

/* ---- the verb ---- */

static int attach_here(struct cli *cli, struct api **api, const char *id, bool is_run,
		       const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	struct attach attach = { .cli = cli,
				 .api = *api,
				 .exec_id = id,
				 .is_run = is_run,
				 .alone = args_has(args, "exclusive") };
	int code;

	if (!args_int(args, "since", 0, INT64_MAX, &attach.since))
		return EXIT_BERTH;
	code = attach_terminal(&attach, &err) < 0 ? cli_fail(cli, &err, EXIT_BERTH)
						  : attach_finish(cli, &attach);
	*api = attach.api;
	return code;
}

static int follow_here(struct cli *cli, struct api **api, const char *id, bool is_run,
		       const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	struct follow f = { .cli = cli,
			    .api = *api,
			    .run_id = id,
			    .is_exec = !is_run,
			    .follow = true,
			    .events = cli->json,
			    .pass_signals = true };
	int code;

	if (!args_int(args, "since", 0, INT64_MAX, &f.since))
		return EXIT_BERTH;
	code = follow_run(&f, &err) < 0 ? cli_fail(cli, &err, EXIT_BERTH) : follow_finish(&f);
	*api = f.api;
	return code;
}

static int attach_verb(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *exec = NULL;
	_cleanup_api_ struct api *api = NULL;
	const char *id = args->positional[0];

	if (api_connect(cli, false, &api, &err) < 0 ||
	    api_callf(api, "GET", NULL, &exec, &err, "/api/execs/%s", id) < 0)
		return cli_fail(cli, &err, EXIT_BERTH);

	bool is_run = json_str(exec, "runId") != NULL;

	if (json_object_at(exec, "tty") && terminal_is_here())
		return attach_here(cli, &api, id, is_run, args);
	return follow_here(cli, &api, id, is_run, args);
}

static const struct flag FLAGS[] = {
	{ "since", 0, "BYTES", "begin at this offset of the output", false },
	{ "exclusive", 0, NULL, "let go whoever sits at the terminal", false },
	{ 0 },
};

VERB(ATTACH, 120) = {
	.name = "attach",
	.arguments = "EXEC|RUN",
	.summary = "come back to a command that is going, to its terminal or its output",
	.help = "A terminal is left with ctrl-p ctrl-q; the command goes on.",
	.flags = FLAGS,
	.min_args = 1,
	.max_args = 1,
	.usage_exit = EXIT_BERTH,
	.run = attach_verb,
};
