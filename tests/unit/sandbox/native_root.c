/*
 * Places whose programs come from an unpacked root: a real one of a few of the host's programs, and
 * roots that are made to lead out.
 */
#include "native_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fd.h"

#define SECRET "of the host"

/* A shell with what it needs, as ldd tells it; $1 is where. */
static const char UNPACK[] =
	"set -e; r=$1; mkdir -p \"$r/bin\" \"$r/etc\"\n"
	"for p in sh cat id ls; do\n"
	"  f=$(readlink -f \"$(command -v $p)\"); cp \"$f\" \"$r/bin/$p\"\n"
	"  ldd \"$f\" | grep -o '/[^ ]*' | while read -r l; do\n"
	"    mkdir -p \"$r$(dirname \"$l\")\"; cp -L \"$l\" \"$r$l\"; done\n"
	"done\n"
	"printf 'root:x:0:0:root:/root:/bin/sh' >\"$r/etc/passwd\"; echo marked >\"$r/etc/mark\"\n"
	"chmod -R go+rX \"$r\"\n";

struct root {
	char path[200], secret[200];
};

static void host_shell(const char *script, const char *argument)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", script, "sh", argument, (char *)NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* `name` below what is allowed; beside it lies a file that no place may read. */
static void have_root(struct fixture *f, const char *name, struct root *r)
{
	snprintf(r->path, sizeof(r->path), "%s/%s", f->shared, name);
	snprintf(r->secret, sizeof(r->secret), "%s/secret", f->base);
	host_shell(UNPACK, r->path);
	host_shell("echo '" SECRET "' >\"$1\"; chmod 644 \"$1\"", r->secret);
}

static void link_in(const struct root *r, const char *target, const char *name)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/%s", r->path, name);
	unlink(path);
	assert_int_equal(symlink(target, path), 0);
}

static void an_unpacked_root_is_all_there_is_of_programs(void **state)
{
	struct fixture *f = *state;
	struct wire_sandbox sandbox = { 0 };
	const char *text;
	struct root r;

	have_root(f, "root", &r);
	sandbox.root = r.path;
	have_place(f, "one", &sandbox);
	text = run_in(f, "one",
		      "id; echo \"home $HOME\"; cat /etc/mark /etc/passwd; pwd;"
		      " echo kept >$HOME/f && cat $HOME/f; ls /usr/bin/env /root /var/log",
		      NULL);
	/* The root does not know who runs in it, and is not asked to be changed for that. */
	has(text, "uid=1000(agent) gid=1000(agent)");
	has(text, "home /home/agent\nmarked\nroot:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:");
	has(text, "/workspace\nkept\n");
	has(text, "/usr/bin/env': No such file");
	has(text, "/var/log': No such file");
	lacks(run_in(f, "one", "cat /etc/passwd /etc/shadow /etc/hostname", NULL), "nobody");
}

static void nothing_is_written_to_an_unpacked_root(void **state)
{
	struct fixture *f = *state;
	struct wire_sandbox sandbox = { .user = as_user ? NULL : "root" };
	_cleanup_buf_ struct buf before = { 0 }, after = { 0 };
	char passwd[300];
	struct root r;
	int status;

	have_root(f, "root", &r);
	snprintf(passwd, sizeof(passwd), "%s/etc/passwd", r.path);
	assert_int_equal(file_read(AT_FDCWD, passwd, &before, 4096, NULL), 0);
	sandbox.root = r.path;
	have_place(f, "one", &sandbox);
	/* Who owns the root inside writes to a layer of the place. */
	run_in(f, "one", as_user ? "echo new >/new" : "echo new >/etc/passwd; echo new >/new",
	       &status);
	assert_int_equal(status, 0);
	assert_int_equal(file_read(AT_FDCWD, passwd, &after, 4096, NULL), 0);
	assert_string_equal(buf_str(&before), buf_str(&after));
	snprintf(passwd, sizeof(passwd), "%s/new", r.path);
	assert_int_equal(access(passwd, F_OK), -1);
	/* The next place has it as it was. */
	assert_int_equal(destroy(f, "one"), 0);
	have_place(f, "two", &sandbox);
	lacks(run_in(f, "two", "cat /new /etc/passwd", NULL), "new\n");
}

static void files_over_a_root_are_kept_in_a_store(void **state)
{
	struct fixture *f = *state;
	struct wire_sandbox sandbox = { .store = "kept" };
	struct root r;

	have_root(f, "root", &r);
	sandbox.root = r.path;
	have_place(f, "one", &sandbox);
	run_in(f, "one", "echo kept >$HOME/f", NULL);
	assert_int_equal(destroy(f, "one"), 0);
	have_place(f, "two", &sandbox);
	has(run_in(f, "two", "id -un; cat $HOME/f", NULL), "agent\nkept\n");
}

static void links_in_a_root_lead_nowhere_but_into_it(void **state)
{
	struct fixture *f = *state;
	struct wire_sandbox sandbox = { 0 };
	char up[400];
	struct root r;
	const char *text;

	have_root(f, "root", &r);
	snprintf(up, sizeof(up), "../../../../../../../..%s", r.secret);
	link_in(&r, r.secret, "absolute");
	link_in(&r, up, "up");
	link_in(&r, f->base, "directory");
	link_in(&r, "/proc/1/root", "first");
	/* What is read of a root before it is left must not be read through a link. */
	link_in(&r, r.secret, "etc/passwd");
	link_in(&r, up, "etc/group");
	sandbox.root = r.path;
	have_place(f, "one", &sandbox);
	text = run_in(f, "one",
		      "cat /absolute /up /directory/secret /etc/passwd /etc/group; ls /directory/;"
		      " cat /first/absolute; echo done",
		      NULL);
	lacks(text, SECRET);
	lacks(text, "keeper");
	has(text, "done");
}

static void programs_and_devices_of_a_root_give_no_power(void **state)
{
	struct fixture *f = *state;
	struct wire_sandbox sandbox = { 0 };
	struct root r;
	const char *text;

	have_root(f, "root", &r);
	host_shell("cp \"$1/bin/id\" \"$1/bin/suid\"; chmod 6755 \"$1/bin/suid\";"
		   " mknod -m 666 \"$1/node\" c 1 3 2>/dev/null || touch \"$1/node\"",
		   r.path);
	sandbox.root = r.path;
	have_place(f, "one", &sandbox);
	text = run_in(f, "one",
		      "/bin/suid -u; /bin/suid -g; [ -c /node ] && cat /node && echo opened", NULL);
	has(text, "1000\n1000\n");
	lacks(text, "opened");
}

static void roots_that_are_none_are_refused_by_name(void **state)
{
	struct fixture *f = *state;
	char missing[200], file[200], link[200];
	const struct {
		const char *path, *says;
	} roots[] = {
		{ "relative", "clean absolute path" },
		{ missing, "No such file" },
		{ file, "is no directory" },
		{ link, "--allow-path" },
		{ "/usr", "--allow-path" },
		{ f->dir, "would show the data directory" },
		{ f->base, "would show the data directory" },
	};

	snprintf(missing, sizeof(missing), "%s/missing", f->shared);
	snprintf(file, sizeof(file), "%s/file", f->shared);
	snprintf(link, sizeof(link), "%s/link", f->shared);
	host_shell("echo x >\"$1\"", file);
	assert_int_equal(symlink("/usr", link), 0);
	for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
		const struct wire_sandbox sandbox = { .root = roots[i].path };

		assert_int_equal(make_place(f, "one", &sandbox), WERR_INVALID);
		has(f->refusal, roots[i].says);
	}
}

static void a_root_with_a_link_where_a_wall_goes_is_refused(void **state)
{
	static const char *const names[] = { "proc", "dev", "tmp", "workspace", "home", "var" };
	struct fixture *f = *state;
	struct root r;

	have_root(f, "root", &r);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const struct wire_sandbox sandbox = { .root = r.path };
		char path[300];

		link_in(&r, f->base, names[i]);
		assert_int_equal(make_place(f, names[i], &sandbox), WERR_START);
		has(f->refusal, names[i]);
		snprintf(path, sizeof(path), "%s/%s", r.path, names[i]);
		assert_int_equal(unlink(path), 0);
	}
	/* Nothing of it is on the host, and without links it is as good as any. */
	assert_int_equal(count_entries(f->base), 3);
	have_place(f, "two", &(struct wire_sandbox){ .root = r.path });
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_unpacked_root_is_all_there_is_of_programs),
		TEST(nothing_is_written_to_an_unpacked_root),
		TEST(files_over_a_root_are_kept_in_a_store),
		TEST(links_in_a_root_lead_nowhere_but_into_it),
		TEST(programs_and_devices_of_a_root_give_no_power),
		TEST(roots_that_are_none_are_refused_by_name),
		TEST(a_root_with_a_link_where_a_wall_goes_is_refused),
	};
	int failed;

	/* In a root of its own nothing of the host's is there for a program to be linked with. */
	setenv("BERTH_RELAY", TEST_STATIC_RELAY, 1);
	failed = cmocka_run_group_tests_name("root", tests, NULL, NULL);

	if (geteuid() == 0) {
		as_user = true;
		failed +=
			cmocka_run_group_tests_name("root of an ordinary user", tests, NULL, NULL);
	}
	return failed;
}
