/*
 * A live view of environments, leases and runs. What is shown is asked from the API anew whenever
 * an event says that something changed, and every few seconds for what has no event.
 */
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "cli/sse.h"
#include "cli/terminal.h"
#include "cli/cli.h"

#define REFRESH_MS 2000
#define SETTLE_MS 150 /* changes come in bursts */
#define LIST_MAX 200
#define ENTER "\033[?1049h\033[?25l"
#define LEAVE "\033[?25h\033[?1049l"
#define HOME "\033[H"
#define CLEAR_LINE "\033[K"
#define CLEAR_BELOW "\033[J"
#define BOLD "\033[1m"
#define PLAIN "\033[0m"

struct top {
	struct cli *cli;
	struct api *api; /* for questions; the events have a connection of their own */
	char company_id[ID_SIZE];
	json_t *view; /* {environments, leases, runs} as last asked for */
	struct error trouble;
	int wake_fd, timer_fd, size_fd;
	bool quit;
};

/* ---- what is shown ---- */

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void append_all(json_t *to, json_t *from, const char *name)
{
	json_t *item;
	size_t i;

	json_array_foreach (from, i, item) {
		if (name)
			json_put_str(item, "environmentName", name);
		json_array_append(to, item);
	}
}

/* The leases of one environment that hold something, and how many of each kind. */
static int ask_leases(struct top *top, json_t *environment, json_t *leases, struct error *err)
{
	static const char *const STATUSES[] = { "active", "pending_cleanup", "retained" };

	for (size_t i = 0; i < ARRAY_SIZE(STATUSES); i++) {
		_cleanup_json_ json_t *list = NULL;
		_cleanup_free_ char *path =
			xasprintf("/api/environments/%s/leases?status=%s&limit=%d",
				  json_str(environment, "id"), STATUSES[i], LIST_MAX);

		if (api_call(top->api, "GET", path, NULL, &list, err) < 0)
			return -1;
		json_put_int(environment, STATUSES[i], (int64_t)json_array_size(list));
		append_all(leases, list, json_str(environment, "name"));
	}
	return 0;
}

static int ask_runs(struct top *top, json_t *runs, struct error *err)
{
	static const char *const STATUSES[] = { "running", "queued" };

	for (size_t i = 0; i < ARRAY_SIZE(STATUSES); i++) {
		_cleanup_json_ json_t *page = NULL;
		_cleanup_free_ char *path = xasprintf("/api/companies/%s/runs?status=%s&limit=%d",
						      top->company_id, STATUSES[i], LIST_MAX);

		if (api_call(top->api, "GET", path, NULL, &page, err) < 0)
			return -1;
		append_all(runs, json_object_get(page, "items"), NULL);
	}
	return 0;
}

static int ask_recent(struct top *top, json_t *runs, struct error *err)
{
	_cleanup_json_ json_t *page = NULL;
	json_t *run;
	size_t i;

	if (api_callf(top->api, "GET", NULL, &page, err, "/api/companies/%s/runs?limit=20",
		      top->company_id) < 0)
		return -1;
	json_array_foreach (json_object_get(page, "items"), i, run) {
		if (json_str(run, "finishedAt"))
			json_array_append(runs, run);
	}
	return 0;
}

static int ask(struct top *top, struct error *err)
{
	_cleanup_json_ json_t *view = json_object(), *environments = NULL;
	json_t *leases = json_array(), *runs = json_array(), *environment;
	size_t i;

	json_put_new(view, "leases", leases);
	json_put_new(view, "runs", runs);
	if (api_callf(top->api, "GET", NULL, &environments, err, "/api/companies/%s/environments",
		      top->company_id) < 0)
		return -1;
	json_array_foreach (environments, i, environment) {
		if (ask_leases(top, environment, leases, err) < 0)
			return -1;
	}
	if (ask_runs(top, runs, err) < 0 || ask_recent(top, runs, err) < 0)
		return -1;
	json_put_ref(view, "environments", environments);
	json_decref(top->view);
	top->view = steal(view);
	return 0;
}

/* ---- how it is drawn ---- */

struct screen {
	struct buf out;
	int rows, cols, used;
};

/* A line cut to the width of the screen; what comes from records cannot steer the terminal. */
static void put_line(struct screen *s, const char *style, const char *text)
{
	int cols = 0;

	if (s->used >= s->rows)
		return;
	buf_puts(&s->out, style);
	for (const char *p = text; *p; p++) {
		bool begins = ((unsigned char)*p & 0xc0) != 0x80;

		if (begins && cols++ == s->cols)
			break;
		buf_putc(&s->out, (unsigned char)*p < 0x20 || *p == 0x7f ? '?' : *p);
	}
	buf_puts(&s->out, PLAIN CLEAR_LINE);
	if (++s->used < s->rows)
		buf_puts(&s->out, "\r\n");
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_str(object, key);

	return text ? text : "-";
}

static void age_of(const json_t *object, const char *key, char *out, size_t size)
{
	const char *since = json_str(object, key);
	int64_t ms;

	snprintf(out, size, "-");
	if (since && time_parse_iso(since, &ms) == 0)
		format_duration(MAX_OF(now_ms() - ms, 0) / 1000 * 1000, out, size);
}

static void put_environment(struct screen *s, const json_t *e)
{
	_cleanup_free_ char *line = xasprintf(
		"%-24.24s %-9.9s %-9.9s %6lld %8lld %8lld", text_of(e, "name"),
		text_of(e, "driver"), text_of(e, "status"), (long long)json_int(e, "active", 0),
		(long long)json_int(e, "pending_cleanup", 0),
		(long long)json_int(e, "retained", 0));

	put_line(s, "", line);
}

static void put_lease(struct screen *s, const json_t *l)
{
	char age[32];

	age_of(l, "acquiredAt", age, sizeof(age));

	_cleanup_free_ char *line =
		xasprintf("%-8.8s %-20.20s %-15.15s %-10.10s %10.10s  %-8.8s", text_of(l, "id"),
			  text_of(l, "environmentName"), text_of(l, "status"),
			  text_of(l, "provider"), age, text_of(l, "heartbeatRunId"));

	put_line(s, "", line);
}

static void put_run(struct screen *s, const json_t *r)
{
	char age[32];
	_cleanup_buf_ struct buf command = { 0 };
	json_t *word;
	size_t i;

	json_array_foreach (json_object_get(r, "command"), i, word)
		buf_printf(&command, "%s%s", i ? " " : "", json_string_value(word));

	age_of(r, json_str(r, "finishedAt") ? "finishedAt" : "createdAt", age, sizeof(age));

	_cleanup_free_ char *line = xasprintf("%-8.8s %-10.10s %10.10s  %s", text_of(r, "id"),
					      text_of(r, "status"), age, buf_str(&command));

	put_line(s, "", line);
}

/* At most `room` lines with the heading; what does not fit is counted in the last of them. */
static void put_section(struct screen *s, const char *title, const json_t *items, int room,
			void (*put)(struct screen *, const json_t *))
{
	size_t count = json_array_size(items), fits = room > 2 ? (size_t)room - 1 : 1;
	json_t *item;
	size_t i;

	put_line(s, BOLD, title);
	json_array_foreach (items, i, item) {
		if (i + 1 == fits && count > fits)
			break;
		put(s, item);
	}
	if (i < count) {
		_cleanup_free_ char *rest = xasprintf("... %zu more", count - i);

		put_line(s, "", rest);
	}
}

static void put_head(struct screen *s, const struct top *top)
{
	char time[16];
	time_t now = (time_t)(now_ms() / 1000);
	struct tm local;
	_cleanup_free_ char *line = NULL;

	localtime_r(&now, &local);
	strftime(time, sizeof(time), "%H:%M:%S", &local);
	if (top->trouble.code != ERR_NONE)
		line = xasprintf("berth top %s  %s", time, top->trouble.message);
	else
		line = xasprintf("berth top %s  %zu leases, %zu runs listed  (q quits)", time,
				 json_array_size(json_object_get(top->view, "leases")),
				 json_array_size(json_object_get(top->view, "runs")));
	put_line(s, BOLD, line);
}

static void draw(struct top *top)
{
	struct screen s = { 0 };
	uint16_t rows, cols;
	const json_t *environments = json_object_get(top->view, "environments");
	const json_t *leases = json_object_get(top->view, "leases");

	terminal_size(&rows, &cols);
	s.rows = rows;
	s.cols = cols;
	buf_puts(&s.out, HOME);
	put_head(&s, top);
	/* A third each at most; what one does not need is left to the runs. */
	put_section(&s, "ENVIRONMENT              DRIVER    STATUS    ACTIVE  CLEANUP RETAINED",
		    environments, MAX_OF(rows / 4, 3), put_environment);
	put_section(&s, "LEASE    ENVIRONMENT          STATUS          PROVIDER          AGE  RUN",
		    leases, MAX_OF(rows / 3, 3), put_lease);
	put_section(&s, "RUN      STATUS            AGE  COMMAND",
		    json_object_get(top->view, "runs"), rows - s.used, put_run);
	buf_puts(&s.out, CLEAR_BELOW);
	fd_write_all(STDOUT_FILENO, s.out.data, s.out.len, NULL);
	buf_free(&s.out);
}

/* ---- what makes it change ---- */

static void refresh_in(struct top *top, int64_t ms)
{
	struct itimerspec at = { .it_value = { ms / 1000, ms % 1000 * 1000000 } };

	timerfd_settime(top->timer_fd, 0, &at, NULL);
}

static void refresh(struct top *top)
{
	error_clear(&top->trouble);
	ask(top, &top->trouble);
	draw(top);
	refresh_in(top, REFRESH_MS);
}

static bool note_event(void *arg, const char *type, const char *data, size_t len)
{
	struct top *top = arg;
	(void)data, (void)len;

	if (!streq(type, "heartbeat.run.log"))
		refresh_in(top, SETTLE_MS);
	return true;
}

static void read_keys(struct top *top)
{
	char keys[64];
	ssize_t n = read(STDIN_FILENO, keys, sizeof(keys));

	/* In raw mode Ctrl-C is a key like any other. */
	for (ssize_t i = 0; i < n; i++)
		top->quit |= keys[i] == 'q' || keys[i] == 'Q' || keys[i] == 3;
	top->quit |= n == 0;
}

static bool wake_up(void *arg)
{
	struct top *top = arg;
	uint64_t ticks;

	if (latch_is_set(STDIN_FILENO))
		read_keys(top);
	if (latch_is_set(top->size_fd)) {
		latch_clear(top->size_fd);
		draw(top);
	}
	if (read(top->timer_fd, &ticks, sizeof(ticks)) == sizeof(ticks))
		refresh(top);
	return !top->quit;
}

static int watch(struct top *top, int fd, struct error *err)
{
	struct epoll_event event = { .events = EPOLLIN };

	if (fd < 0 || epoll_ctl(top->wake_fd, EPOLL_CTL_ADD, fd, &event) < 0)
		return error_set(err, ERR_IO, "cannot watch the terminal");
	return 0;
}

static int run_live(struct top *top, struct error *err)
{
	struct sse sse = { .cli = top->cli,
			   .last_id = -1,
			   .follow = true,
			   .types = "heartbeat.run.queued,heartbeat.run.status,activity.logged",
			   .on_event = note_event,
			   .on_wake = wake_up,
			   .arg = top };

	top->wake_fd = epoll_create1(EPOLL_CLOEXEC);
	top->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	top->size_fd = terminal_watch_size();
	if (watch(top, STDIN_FILENO, err) < 0 || watch(top, top->timer_fd, err) < 0 ||
	    watch(top, top->size_fd, err) < 0 || api_connect(top->cli, false, &sse.api, err) < 0)
		return -1;
	sse.wake_fd = top->wake_fd;
	id_copy(sse.company_id, top->company_id);
	if (!terminal_raw()) {
		api_close(sse.api);
		return error_set(err, ERR_IO, "this terminal cannot be used");
	}
	fd_write_all(STDOUT_FILENO, ENTER, strlen(ENTER), NULL);
	refresh(top);

	int r = sse_run(&sse, err);

	fd_write_all(STDOUT_FILENO, LEAVE, strlen(LEAVE), NULL);
	terminal_restore();
	api_close(sse.api);
	return r;
}

static void print_once(const struct top *top)
{
	static const char *const ENVIRONMENTS[] = { "ENVIRONMENT=name",
						    "DRIVER=driver",
						    "STATUS=status",
						    "ACTIVE=active",
						    "CLEANUP=pending_cleanup",
						    "RETAINED=retained",
						    NULL };
	static const char *const LEASES[] = { "LEASE=id",           "ENVIRONMENT=environmentName",
					      "STATUS=status",      "ACQUIRED=acquiredAt",
					      "RUN=heartbeatRunId", NULL };
	static const char *const RUNS[] = { "RUN=id", "STATUS=status", "CREATED=createdAt",
					    "COMMAND=command", NULL };

	if (top->cli->json) {
		print_json(top->view);
		return;
	}
	print_table(json_object_get(top->view, "environments"), ENVIRONMENTS);
	putchar('\n');
	print_table(json_object_get(top->view, "leases"), LEASES);
	putchar('\n');
	print_table(json_object_get(top->view, "runs"), RUNS);
}

static int top_verb(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	struct top top = { .cli = cli, .wake_fd = -1, .timer_fd = -1, .size_fd = -1 };
	bool once = args_has(args, "once");
	int r;

	if (!once && !terminal_is_here()) {
		fputs("berth: top needs a terminal; --once prints the current state\n", stderr);
		return EXIT_USAGE;
	}
	r = api_connect(cli, true, &top.api, &err);
	if (r == 0)
		r = api_company(cli, top.api, top.company_id, &err);
	if (r == 0)
		r = ask(&top, &err);
	if (r == 0 && once)
		print_once(&top);
	else if (r == 0)
		r = run_live(&top, &err);
	json_decref(top.view);
	error_clear(&top.trouble);
	api_close(top.api);
	close_fdp(&top.wake_fd);
	close_fdp(&top.timer_fd);
	return r < 0 ? cli_fail(cli, &err, 1) : 0;
}

static const struct flag FLAGS[] = {
	{ "once", 0, NULL, "print the current state and exit", false },
	{ 0 },
};

VERB(TOP, 220) = { .name = "top",
		   .arguments = "",
		   .flags = FLAGS,
		   .summary = "show environments, leases and runs, live",
		   .help = "q quits. --once --json is for programs.",
		   .run = top_verb };
