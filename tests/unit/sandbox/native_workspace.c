/* Directories of the host as workspaces of native places. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "native_fixture.h"
#include "base/fd.h"
#include "wire/hidden_paths.h"

static void write_text(const char *dir, const char *name, const char *text, mode_t mode)
{
	char path[300];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static const char *read_text(const char *dir, const char *name)
{
	static struct buf text;
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	buf_reset(&text);
	return file_read(AT_FDCWD, path, &text, 4096, NULL) < 0 ? NULL : buf_str(&text);
}

/* A tree of somebody's; as root, of a user who is neither root nor the payload's number. */
struct tree {
	char path[200];
	char masks[300];
	struct wire_sandbox sandbox;
};

static void give_tree(struct fixture *f, const char *path)
{
	char command[400];
	uid_t owner = as_user ? 65534 : 4242;

	(void)f;
	snprintf(command, sizeof(command), "chown -hR %u:%u %s", owner, owner, path);
	assert_int_equal(system(command), 0);
}

static void have_tree(struct fixture *f, struct tree *t)
{
	_cleanup_buf_ struct buf masks = { 0 };
	char path[300];
	int fd;

	snprintf(t->path, sizeof(t->path), "%s/tree", f->base);
	snprintf(t->masks, sizeof(t->masks), "%s/masked", f->data);
	make_directory(t->path, 0755);
	for (const char *const *d = (const char *const[]){ "src", "src/deep", "build", ".git",
							   ".git/hooks", NULL };
	     *d; d++) {
		snprintf(path, sizeof(path), "%s/%s", t->path, *d);
		make_directory(path, 0755);
	}
	write_text(t->path, "hello", "hello\n", 0640);
	write_text(t->path, "src/main", "main\n", 0755);
	write_text(t->path, "src/deep/key", "canary\n", 0600);
	write_text(t->path, "build/out", "canary\n", 0644);
	write_text(t->path, ".env", "canary\n", 0600);
	write_text(t->path, ".git/config", "canary\n", 0644);
	write_text(t->path, ".git/hooks/pre-commit", "canary\n", 0755);
	give_tree(f, t->path);
	mask_add(&masks, MASK_HIDDEN, ".env", NULL);
	mask_add(&masks, MASK_HIDDEN, "build", NULL);
	mask_add(&masks, MASK_HIDDEN, "src/deep/key", NULL);
	mask_add(&masks, MASK_HIDDEN, "not/there", NULL);
	mask_add(&masks, MASK_FILE, ".git/config", "made up\n");
	mask_add(&masks, MASK_EMPTY, ".git/hooks", NULL);
	fd = open(t->masks, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	assert_int_equal(write(fd, masks.data, masks.len), masks.len);
	close(fd);
	t->sandbox = (struct wire_sandbox){ .workspace = t->path, .overlay = 1, .masks = t->masks };
}

static void an_overlaid_workspace_is_the_hosts_and_takes_no_writes(void **state)
{
	struct fixture *f = *state;
	char upper[300];
	struct stat st;
	struct tree t;
	const char *text;

	have_tree(f, &t);
	have_place(f, "one", &t.sandbox);
	text = run_in(f, "one",
		      "cat hello; stat -c '%U %G %a %n' . hello src src/main; echo more >> hello; "
		      "echo new > src/new; rm src/main; rm -r src/deep; cat hello src/new; ls src",
		      NULL);
	has(text, "hello\nagent agent 755 .\nagent agent 640 hello\nagent agent 755 src\n"
		  "agent agent 755 src/main\nhello\nmore\nnew\nnew\n");
	assert_string_equal(read_text(t.path, "hello"), "hello\n");
	assert_string_equal(read_text(t.path, "src/main"), "main\n");
	assert_null(read_text(t.path, "src/new"));
	snprintf(upper, sizeof(upper), "%s/places/one/files/over-workspace", f->dir);
	assert_string_equal(read_text(upper, "hello"), "hello\nmore\n");
	snprintf(upper, sizeof(upper), "%s/places/one/files/over-workspace/src/main", f->dir);
	assert_int_equal(lstat(upper, &st), 0);
	assert_true(S_ISCHR(st.st_mode) && st.st_rdev == 0);
}

static void what_is_masked_is_not_in_the_place(void **state)
{
	static const char script[] =
		"grep -r canary . ; ls -A; ls -A build src/deep .git/hooks; cat .git/config; "
		"mkdir build && ls -A build; echo mine > .env; rm .env; ls -A; stat -c '%U %a' "
		"src/deep";
	struct fixture *f = *state;
	struct tree t;
	const char *text;

	have_tree(f, &t);
	have_place(f, "one", &t.sandbox);
	text = run_in(f, "one", script, NULL);
	lacks(text, "canary");
	lacks(text, "out");
	lacks(text, ".env");
	has(text, "made up\n");
	has(text, "'build': No such file");
	has(text, "agent 755");
	assert_string_equal(read_text(t.path, ".env"), "canary\n");
}

static void without_the_masks_the_secret_would_be_seen(void **state)
{
	struct fixture *f = *state;
	struct tree t;

	assert_int_equal(kill(f->keeper, SIGKILL), 0);
	waitpid(f->keeper, NULL, 0);
	peer_close(&f->peer);
	keeper_spawn(f, "sandbox.masks:skip");
	keeper_greet(f);
	have_tree(f, &t);
	have_place(f, "one", &t.sandbox);
	has(run_in(f, "one", "cat .env .git/config", NULL), "canary\ncanary\n");
}

static void a_bound_workspace_is_written_in_its_owners_name(void **state)
{
	struct fixture *f = *state;
	char path[300];
	struct stat st;
	struct tree t;

	have_tree(f, &t);
	t.sandbox.overlay = 0;
	t.sandbox.masks = NULL;
	have_place(f, "one", &t.sandbox);
	has(run_in(f, "one", "echo more >> hello; echo new > new; cat hello; stat -c %U new", NULL),
	    "hello\nmore\nagent\n");
	assert_string_equal(read_text(t.path, "hello"), "hello\nmore\n");
	snprintf(path, sizeof(path), "%s/new", t.path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, as_user ? 65534 : 4242);
}

static void what_is_no_workspace_is_refused(void **state)
{
	struct fixture *f = *state;
	char link[300], above[100];
	struct tree t;

	have_tree(f, &t);
	snprintf(link, sizeof(link), "%s/link", f->base);
	snprintf(above, sizeof(above), "%s", f->base);
	assert_int_equal(symlink(t.path, link), 0);

	const char *const refused[] = { "/",   "/proc/self", "/sys", "/sys/fs",  "relative",   link,
					above, f->data,      f->dir, "/nowhere", "/tmp/../tmp" };

	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		t.sandbox.workspace = refused[i];
		assert_int_equal(make_place(f, "one", &t.sandbox), WERR_INVALID);
	}
	snprintf(link, sizeof(link), "%s/hello", t.path);
	t.sandbox.workspace = link;
	assert_int_equal(make_place(f, "one", &t.sandbox), WERR_INVALID);
	t.sandbox.workspace = t.path;
	t.sandbox.masks = "/etc/passwd";
	assert_int_equal(make_place(f, "one", &t.sandbox), WERR_INVALID);
	write_text(f->data, "masked", "?torn", 0600);
	t.sandbox.masks = t.masks;
	assert_int_equal(make_place(f, "one", &t.sandbox), WERR_INVALID);
	/* Told apart: without the mount it could be had. */
	t.sandbox.masks = NULL;
	t.sandbox.workspace = "/run";
	assert_int_equal(make_place(f, "one", &t.sandbox), WERR_UNSUPPORTED);
	t.sandbox.workspace = t.path;
	t.sandbox.tmpfs = 1;
	assert_int_equal(make_place(f, "one", &t.sandbox), WERR_UNSUPPORTED);
}

/* The API's socket may lie outside of the data directory. */
static void what_would_show_the_servers_socket_is_refused(void **state)
{
	struct fixture *f = *state;
	char deep[300];
	const char *closed = deep, *mount[] = { "ro", f->shared, "/shared" };
	struct tree t;

	have_tree(f, &t);
	snprintf(deep, sizeof(deep), "%s/src", t.path);
	t.sandbox.masks = NULL;
	t.sandbox.closed = (struct wire_strv){ &closed, 1 };
	for (uint32_t overlay = 0; overlay < 2; overlay++) {
		t.sandbox.overlay = overlay;
		t.sandbox.workspace = deep;
		assert_int_equal(make_place(f, "one", &t.sandbox), WERR_INVALID);
		has(f->refusal, "would show the server's socket");
		t.sandbox.workspace = t.path;
		assert_int_equal(make_place(f, "one", &t.sandbox), WERR_INVALID);
		has(f->refusal, "would show the server's socket");
	}
	closed = f->shared;
	assert_int_equal(make_place(f, "one",
				    &(struct wire_sandbox){ .mounts = { mount, 3 },
							    .closed = { &closed, 1 } }),
			 WERR_INVALID);
	has(f->refusal, "would show the server's socket");
	assert_int_equal(
		make_place(f, "one",
			   &(struct wire_sandbox){ .root = f->shared, .closed = { &closed, 1 } }),
		WERR_INVALID);
	has(f->refusal, "would show the server's socket");
	/* What is deeper does not show it. */
	closed = t.path;
	t.sandbox.workspace = deep;
	have_place(f, "one", &t.sandbox);
}

/* A service of the host that takes connections of everybody who can name it. */
static int listen_at(const char *path)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(strlen(path) < sizeof(name.sun_path));
	memcpy(name.sun_path, path, strlen(path));
	assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(chmod(path, 0777), 0);
	/* Nobody writes through what belongs to others than the workspace's owner. */
	assert_int_equal(chown(path, as_user ? 65534 : 4242, as_user ? 65534 : 4242), 0);
	return fd;
}

/* One deep in the workspace, one in a mount, one in a directory that only names lead through. */
struct services {
	struct tree tree;
	int fds[3];
	const char *mount[3];
};

static void have_services(struct fixture *f, struct services *s)
{
	char path[300];

	have_tree(f, &s->tree);
	snprintf(path, sizeof(path), "%s/src/deep/s", s->tree.path);
	s->fds[0] = listen_at(path);
	snprintf(path, sizeof(path), "%s/s", f->shared);
	s->fds[1] = listen_at(path);
	snprintf(path, sizeof(path), "%s/blind", s->tree.path);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/blind/s", s->tree.path);
	s->fds[2] = listen_at(path);
	snprintf(path, sizeof(path), "%s/blind", s->tree.path);
	assert_int_equal(chmod(path, 0711), 0);
	s->mount[0] = "ro";
	s->mount[1] = f->shared;
	s->mount[2] = "/shared";
	s->tree.sandbox.overlay = 0;
	s->tree.sandbox.masks = NULL;
	s->tree.sandbox.mounts = (struct wire_strv){ s->mount, 3 };
}

static void end_services(struct services *s)
{
	for (size_t i = 0; i < ARRAY_SIZE(s->fds); i++)
		close(s->fds[i]);
}

#define CONNECT                                                                                    \
	"python3 -c 'import socket\n"                                                              \
	"for p in \"src/deep/s\", \"/shared/s\", \"blind/s\":\n"                                   \
	"  print(socket.socket(socket.AF_UNIX).connect_ex(p))'"

static void services_of_the_host_are_not_reached_through_what_is_shared(void **state)
{
	struct fixture *f = *state;
	struct services s;
	const char *text;

	have_services(f, &s);
	have_place(f, "one", &s.tree.sandbox);
	/* ECONNREFUSED, and the last is not there at all. */
	has(run_in(f, "one", CONNECT, NULL), "111\n111\n2\n");
	text = run_in(f, "one",
		      "test -S src/deep/s && echo is; rm -f src/deep/s; mv src moved;"
		      "ln moved/deep/s other; rm -rf blind; cat hello",
		      NULL);
	has(text, "is\n");
	has(text, "hello\n");
	has(run_in(f, "one", "mv moved src;" CONNECT, NULL), "111\n111\n2\n");
	end_services(&s);
}

static void sockets_that_were_asked_for_are_reached(void **state)
{
	struct fixture *f = *state;
	struct services s;

	have_services(f, &s);
	s.tree.sandbox.sockets = 1;
	have_place(f, "one", &s.tree.sandbox);
	has(run_in(f, "one", CONNECT, NULL), "0\n0\n0\n");
	end_services(&s);
}

static void without_the_covers_the_services_would_be_reached(void **state)
{
	struct fixture *f = *state;
	struct services s;

	keeper_kill(f);
	keeper_spawn(f, "sandbox.wall.sockets:skip");
	keeper_greet(f);
	have_services(f, &s);
	have_place(f, "one", &s.tree.sandbox);
	has(run_in(f, "one", CONNECT, NULL), "0\n0\n0\n");
	end_services(&s);
}

static void a_tree_too_deep_to_be_looked_through_is_refused(void **state)
{
	struct fixture *f = *state;
	struct tree t;
	char path[300];
	int fd;

	have_tree(f, &t);
	t.sandbox.overlay = 0;
	t.sandbox.masks = NULL;
	snprintf(path, sizeof(path), "%s/src", t.path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < 300; i++) {
		int next;

		assert_int_equal(mkdirat(fd, "d", 0755), 0);
		next = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		close(fd);
		fd = next;
	}
	close(fd);
	assert_int_not_equal(make_place(f, "one", &t.sandbox), 0);
	has(f->refusal, "to look for unix sockets");
	t.sandbox.sockets = 1;
	have_place(f, "one", &t.sandbox);
}

static void a_layer_outlives_its_relay_and_its_keeper(void **state)
{
	struct fixture *f = *state;
	char upper[300];
	uint32_t stream;
	struct tree t;

	have_tree(f, &t);
	have_place(f, "one", &t.sandbox);
	run_in(f, "one", "echo work > work", NULL);
	/* Both at once: nobody sees the relay go. */
	assert_int_equal(kill(f->keeper, SIGSTOP), 0);
	assert_int_equal(kill(f->relay, SIGKILL), 0);
	assert_int_equal(kill(f->keeper, SIGKILL), 0);
	waitpid(f->keeper, NULL, 0);
	peer_close(&f->peer);
	/* One that is still dying would be adopted. */
	assert_true(process_is_gone_soon(f->relay));
	keeper_spawn(f, NULL);
	keeper_greet(f);
	stream = peer_ask(&f->peer, WIRE_PLACE_LIST, &(struct wire_place_list){});
	assert_int_equal(peer_next_on(&f->peer, stream), WIRE_PLACE_STATE);
	assert_int_equal(f->peer.m.place_state.state, PLACE_DEAD);
	snprintf(upper, sizeof(upper), "%s", f->peer.m.place_state.upper);
	assert_string_equal(read_text(upper, "work"), "work\n");
	assert_int_equal(peer_next_on(&f->peer, stream), WIRE_DONE);
	assert_int_equal(destroy(f, "one"), 0);
	assert_null(read_text(upper, "work"));
}

static void every_holding_begins_with_an_empty_layer(void **state)
{
	struct fixture *f = *state;
	struct tree t;

	have_tree(f, &t);
	t.sandbox.store = "kept";
	have_place(f, "one", &t.sandbox);
	run_in(f, "one", "echo stale > hello; echo mine > ~/mine", NULL);
	assert_int_equal(destroy(f, "one"), 0);
	have_place(f, "two", &t.sandbox);
	has(run_in(f, "two", "cat hello ~/mine", NULL), "hello\nmine\n");
}

/* The kernel leaves a directory without any mode bits in a layer, which nobody else can look into. */
static void what_was_written_to_a_layer_goes_with_its_place(void **state)
{
	static const char *const scripts[] = { "echo stale > hello; mkdir -p a/b; rm -r src",
					       "seq 100 | xargs touch",
					       "mkdir -p 1/2/3/4/5/6/7/8/9/10; chmod 0 1/2/3",
					       "head -c 3000000 /dev/zero > large" };
	struct fixture *f = *state;
	char path[200];
	struct tree t;

	have_tree(f, &t);
	snprintf(path, sizeof(path), "%s/places", f->dir);
	for (size_t i = 0; i < ARRAY_SIZE(scripts); i++) {
		have_place(f, "one", &t.sandbox);
		run_in(f, "one", scripts[i], NULL);
		assert_int_equal(destroy(f, "one"), 0);
		assert_int_equal(count_entries(path), 0);
	}
	have_place(f, "one", &t.sandbox);
	has(run_in(f, "one", "cat hello src/main; ls a 1 large", NULL), "hello\nmain\nls: cannot");
	assert_int_equal(destroy(f, "one"), 0);
	await_no_files(f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_overlaid_workspace_is_the_hosts_and_takes_no_writes),
		TEST(what_is_masked_is_not_in_the_place),
		TEST(without_the_masks_the_secret_would_be_seen),
		TEST(a_bound_workspace_is_written_in_its_owners_name),
		TEST(what_is_no_workspace_is_refused),
		TEST(what_would_show_the_servers_socket_is_refused),
		TEST(services_of_the_host_are_not_reached_through_what_is_shared),
		TEST(sockets_that_were_asked_for_are_reached),
		TEST(without_the_covers_the_services_would_be_reached),
		TEST(a_tree_too_deep_to_be_looked_through_is_refused),
		TEST(a_layer_outlives_its_relay_and_its_keeper),
		TEST(every_holding_begins_with_an_empty_layer),
		TEST(what_was_written_to_a_layer_goes_with_its_place),
	};
	int failed = cmocka_run_group_tests_name("workspace", tests, NULL, NULL);

	if (geteuid() == 0) {
		as_user = true;
		failed += cmocka_run_group_tests_name("workspace of an ordinary user", tests, NULL,
						      NULL);
	}
	return failed;
}
