#include "git_fixture.h"
#include "git/repo_config.h"

static void refused(struct git_fixture *f, const char *words)
{
	_cleanup_close_ int root = root_of(f->host);
	enum git_kind kind;
	json_t *about = NULL;

	error_clear(&f->err);
	assert_int_equal(git_inspect(root, f->host, -1, NULL, &kind, &about, &f->err), -1);
	assert_int_equal(f->err.code, ERR_UNPROCESSABLE);
	assert_null(about);
	if (!strstr(f->err.message, words))
		fail_msg("\"%s\" is not in: %s", words, f->err.message);
}

/* The place's repository is whole, has nothing of ours that it should not, and says what the host's
 * says. */
static void staged_faithfully(struct git_fixture *f)
{
	assert_sh(f->place,
		  "git fsck --full --strict --no-dangling 2>&1 | grep -v -e '^notice: ' || true",
		  "");
	assert_sh(f->place,
		  "ls .git/hooks .git/logs .git/objects/info/alternates .git/commondir "
		  "2>/dev/null || true",
		  "");
	assert_same_status(f);
}

static void no_repository_is_no_error(void **state)
{
	struct git_fixture *f = *state;
	_cleanup_close_ int root = root_of(f->place);
	enum git_kind kind = GIT_WORKTREE;
	json_t *about = (json_t *)1;

	assert_ok(f, git_inspect(root, f->place, -1, NULL, &kind, &about, &f->err));
	assert_int_equal(kind, GIT_NONE);
	assert_null(about);
}

static void a_dirty_tree_arrives_as_it_is(void **state)
{
	struct git_fixture *f = *state;

	SH(f->host, "echo 1 >a; echo 2 >b; echo 3 >'c d'; echo 4 >run; echo 5 > $'new\\nline'; "
		    "git add .; git commit -qm one; git tag v1; git tag -am annotated v2; "
		    "git branch side; git mv a renamed; git rm -q b; chmod +x run; git add run; "
		    "echo more >>'c d'; echo x >untracked; echo staged >s; git add s; "
		    "echo unstaged >>s; ln -s nowhere link; git add link");
	stage(f);
	staged_faithfully(f);
	assert_sh(f->place, "git tag; git branch --format='%(refname:short)'",
		  "v1\nv2\nmain\nside");
}

static void packs_loose_objects_and_alternates_become_one_store(void **state)
{
	struct git_fixture *f = *state;

	SH(f->base, "git init -q lender; cd lender; echo l >l; git add l; git commit -qm lent; "
		    "git gc -q; echo m >m; git add m; git commit -qm more");
	SH(f->base,
	   "rm -rf host; git clone -q --shared lender host; cd host; echo h >h; git add h; "
	   "git commit -qm packed; git repack -q -d -l; echo i >i; git add i; "
	   "git commit -qm loose");
	stage(f);
	staged_faithfully(f);
	assert_sh(f->place, "git log --format=%s", "loose\npacked\nmore\nlent");
	assert_sh(f->place, "git config remote.origin.url || echo none", "none");
}

static void a_linked_worktree_becomes_a_repository(void **state)
{
	struct git_fixture *f = *state;

	SH(f->base,
	   "rm -rf host; git init -q main; cd main; echo 1 >a; git add a; git commit -qm one; "
	   "git worktree add -q -b work ../host; cd ../host; echo 2 >>a; git add a; "
	   "git commit -qm two; echo 3 >>a; echo 4 >b; git add b");
	stage(f);
	assert_string_equal(json_str(f->about, "kind"), "worktree");
	staged_faithfully(f);
	assert_sh(f->place, "git rev-parse --git-dir --abbrev-ref HEAD", ".git\nwork");
	assert_sh(f->place, "git worktree list | wc -l", "1");
}

static void detached_and_unborn_heads_arrive(void **state)
{
	struct git_fixture *f = *state;

	SH(f->host, "echo 1 >a; git add a");
	stage(f);
	assert_null(json_str(f->about, "head"));
	assert_string_equal(json_str(f->about, "headRef"), "refs/heads/main");
	staged_faithfully(f);
	SH(f->host, "git commit -qm one; git checkout -q --detach");
	SH(f->base, "rm -rf place; mkdir place");
	json_decref(f->about);
	f->listed = 0;
	stage(f);
	assert_null(json_str(f->about, "headRef"));
	staged_faithfully(f);
}

static void a_merge_and_a_rebase_under_way_arrive(void **state)
{
	struct git_fixture *f = *state;

	SH(f->host, "echo 1 >a; git add a; git commit -qm one; git checkout -qb side; echo 2 >a; "
		    "git commit -qam two; git checkout -q main; echo 3 >a; git commit -qam three; "
		    "git merge side >/dev/null || true");
	stage(f);
	staged_faithfully(f);
	assert_sh(f->place, "git status | grep -c 'Unmerged paths'", "1");
	SH(f->host, "git merge --abort; git rebase side >/dev/null 2>&1 || true");
	SH(f->base, "rm -rf place; mkdir place");
	json_decref(f->about);
	f->listed = 0;
	stage(f);
	staged_faithfully(f);
	SH(f->place, "echo 4 >a; git add a; git rebase --continue");
	assert_sh(f->place, "git log --format=%s", "three\ntwo\none");
}

static void other_formats_arrive(void **state)
{
	struct git_fixture *f = *state;

	SH(f->base,
	   "rm -rf host; git init -q --object-format=sha256 host; cd host; "
	   "git config index.version 4; for i in 1 2 3; do echo $i >file-with-a-name-$i; done; "
	   "git add .; git commit -qm one; echo 2 >>file-with-a-name-1");
	stage(f);
	staged_faithfully(f);
}

static void a_split_index_and_a_shallow_clone_arrive(void **state)
{
	struct git_fixture *f = *state;

	SH(f->base,
	   "rm -rf host; git init -q far; cd far; for i in 1 2 3; do echo $i >a; git add a; "
	   "git commit -qm $i; done; cd ..; git clone -q --depth 2 file://$PWD/far host; cd host; "
	   "git update-index --split-index; echo 9 >b; git add b");
	stage(f);
	staged_faithfully(f);
	assert_sh(f->place, "git log --format=%s", "3\n2");
	assert_sh(f->place, "ls .git | grep -c sharedindex", "1");
}

static void the_config_in_the_place_has_no_secrets_and_no_programs(void **state)
{
	struct git_fixture *f = *state;

	SH(f->host,
	   "echo 1 >a; git add a; git commit -qm one; "
	   "git config user.name 'Ada \"the\" \\Count#ess'; git config user.email a@b.c; "
	   "git remote add origin https://me:hunter2@example.com/x.git?token=hunter2; "
	   "git remote add o2 ssh://git:hunter2@example.com/y.git; git remote add o3 git@h:z.git; "
	   "git remote add o4 /some/hunter2/path; git remote add 'o\"5' "
	   "https://hunter2@h/q#hunter2; "
	   "git config http.extraHeader 'Authorization: hunter2'; git config core.fsmonitor "
	   "/hunter2; "
	   "git config credential.helper '!echo hunter2'; git config core.hooksPath /hunter2; "
	   "git config alias.st '!hunter2'; git config filter.x.clean hunter2; "
	   "git config core.sshCommand hunter2; git config include.path /hunter2; "
	   "git config branch.main.remote origin; git config branch.main.merge refs/heads/main");
	stage(f);
	assert_sh(f->place, "grep -r hunter2 .git/config || echo clean", "clean");
	assert_sh(f->place, "git config user.name", "Ada \"the\" \\Count#ess");
	assert_sh(f->place, "git config --get-regexp 'remote.*url' | sort",
		  "remote.o\"5.url https://h/q\nremote.o2.url ssh://git@example.com/y.git\n"
		  "remote.o3.url git@h:z.git\nremote.origin.url https://example.com/x.git");
	assert_sh(f->place, "git config branch.main.remote", "origin");
	assert_int_equal(json_array_size(json_array_at(f->about, "warnings")), 1);
}

static void what_a_repository_sets_up_does_not_run(void **state)
{
	struct git_fixture *f = *state;

	SH(f->host,
	   "echo 1 >a; git add a; git commit -qm one; printf '#!/bin/sh\\ntouch %s/ran\\n' >evil; "
	   "chmod +x evil; for h in post-index-change reference-transaction pre-auto-gc; do "
	   "cp evil .git/hooks/$h; done; git config core.fsmonitor $PWD/evil; "
	   "git config core.pager $PWD/evil; git config core.sshCommand $PWD/evil; "
	   "git config filter.x.clean $PWD/evil; git config core.alternateRefsCommand $PWD/evil; "
	   "git config diff.external $PWD/evil; echo '* filter=x' >.gitattributes",
	   f->base);
	stage(f);
	assert_sh(f->base, "ls ran 2>/dev/null || echo no", "no");
}

static void submodules_are_refused_once_they_are_checked_out(void **state)
{
	struct git_fixture *f = *state;

	SH(f->base, "git init -q sub; cd sub; echo s >s; git add s; git commit -qm s; cd ../host; "
		    "git -c protocol.file.allow=always submodule add -q ../sub inner 2>/dev/null; "
		    "git commit -qm with");
	refused(f, "git submodule deinit inner");
	SH(f->host, "git submodule -q deinit -f inner");
	stage(f);
	staged_faithfully(f);
}

static void what_cannot_be_carried_is_refused_in_words(void **state)
{
	struct git_fixture *f = *state;

	SH(f->host, "echo 1 >a; git add a; git commit -qm one; mv .git ../elsewhere; "
		    "ln -s ../elsewhere .git");
	refused(f, "is a link");
	SH(f->host, "rm .git; echo 'gitdir: ../nowhere' >.git");
	refused(f, "nowhere");
	SH(f->host, "echo nonsense >.git");
	refused(f, "names no repository");
	SH(f->host,
	   "rm .git; mv ../elsewhere .git; git config extensions.partialClone origin; "
	   "git config core.repositoryFormatVersion 1; git config remote.origin.promisor true");
	refused(f, "partial clone");
	SH(f->host,
	   "git config --unset extensions.partialClone; git config --unset remote.origin.promisor; "
	   "mkdir .git/reftable");
	refused(f, "reftable");
	SH(f->host, "rmdir .git/reftable; rm .git/objects/*/*");
	refused(f, "git fsck");
	SH(f->base, "rm -rf host; git init -q --bare host");
	refused(f, "bare");
}

static void a_repository_leads_nowhere_its_owner_may_not_go(void **state)
{
	struct git_fixture *f = *state;
	enum git_kind kind;

	if (geteuid() != 0)
		skip();
	SH(f->base,
	   "git init -q secret; cd secret; echo s >s; git add s; git commit -qm s; chmod 700 .");
	SH(f->host, "echo 1 >a; git add a; git commit -qm one; chown -R 54321:54321 .");
	stage(f);
	SH(f->host, "echo %s/secret/.git/objects >.git/objects/info/alternates", f->base);
	{
		_cleanup_close_ int root = root_of(f->host);

		SH(f->base, "rm -rf place; mkdir place");
		f->listed = 0;
		assert_int_equal(
			git_list(root, f->host, -1, NULL, f->about, put_in_place, f, &f->err), -1);
		assert_non_null(strstr(f->err.message, "Permission denied"));
		int fd;
		_cleanup_free_ char *source = xasprintf("%s/secret/s", f->base);

		assert_int_equal(git_open_source(root, source, 2, &fd, &f->err), -1);
		assert_int_equal(f->err.errnum, EACCES);
	}
	SH(f->host, "rm -rf .git; echo gitdir: %s/secret/.git >.git; chown 54321:54321 .git",
	   f->base);
	_cleanup_close_ int root = root_of(f->host);

	error_clear(&f->err);
	json_decref(f->about);
	assert_int_equal(git_inspect(root, f->host, -1, NULL, &kind, &f->about, &f->err), -1);
	f->about = NULL;
}

static void a_cancelled_inspection_ends(void **state)
{
	struct git_fixture *f = *state;
	_cleanup_close_ int root = root_of(f->host), cancel = latch_new(NULL);
	enum git_kind kind;

	latch_set(cancel);
	assert_int_equal(git_inspect(root, f->host, cancel, NULL, &kind, &f->about, &f->err), -1);
	assert_int_equal(f->err.code, ERR_CANCELLED);
}

static void addresses_lose_what_is_private(void **state)
{
	static const char *const pairs[][2] = {
		{ "https://u:p@h/x?q#f", "https://h/x" },
		{ "HTTP://u@h:80/x", "HTTP://h:80/x" },
		{ "ssh://git:p@h:22/x", "ssh://git@h:22/x" },
		{ "ssh://h/x", "ssh://h/x" },
		{ "https://h/a@b", "https://h/a@b" },
		{ "git@h:x.git", "git@h:x.git" },
		{ "/a/b", NULL },
		{ "../a:b", NULL },
		{ "file:///a", NULL },
		{ "ext::sh -c x", NULL },
		{ "", NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		_cleanup_free_ char *got = git_scrub_url(pairs[i][0]);

		assert_true(str_equal(got, pairs[i][1]));
	}
}

static void expect_head(struct git_fixture *f, const char *why)
{
	_cleanup_close_ int root = root_of(f->host);
	_cleanup_json_ json_t *about = NULL;
	_cleanup_free_ char *head = sh(f->host, "git rev-parse -q --verify HEAD || true");
	enum git_kind kind;

	assert_ok(f, git_inspect(root, f->host, -1, NULL, &kind, &about, &f->err));
	if (!str_equal(json_str(about, "head"), head[0] ? head : NULL))
		fail_msg("%s: head is %s, not %s", why, json_str(about, "head"), head);
}

/* Git itself is asked only where a branch is not a plain file or a line of packed-refs. */
static void the_head_is_found_wherever_git_keeps_it(void **state)
{
	struct git_fixture *f = *state;

	expect_head(f, "unborn");
	SH(f->host, "echo 1 >a; git add .; git commit -qm one");
	expect_head(f, "a file");
	SH(f->host, "git branch other; git branch main-2; git pack-refs --all; "
		    "git commit -q --allow-empty -m two");
	expect_head(f, "a file over a packed one");
	SH(f->host, "git pack-refs --all");
	expect_head(f, "packed");
	SH(f->host, "git symbolic-ref refs/heads/alias refs/heads/other; "
		    "git symbolic-ref HEAD refs/heads/alias");
	expect_head(f, "a branch that names another");
	SH(f->host, "git symbolic-ref HEAD refs/heads/none");
	expect_head(f, "a branch without a commit");
	SH(f->host, "git checkout -q --detach other");
	expect_head(f, "detached");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		GIT_TEST(the_head_is_found_wherever_git_keeps_it),
		GIT_TEST(no_repository_is_no_error),
		GIT_TEST(a_dirty_tree_arrives_as_it_is),
		GIT_TEST(packs_loose_objects_and_alternates_become_one_store),
		GIT_TEST(a_linked_worktree_becomes_a_repository),
		GIT_TEST(detached_and_unborn_heads_arrive),
		GIT_TEST(a_merge_and_a_rebase_under_way_arrive),
		GIT_TEST(other_formats_arrive),
		GIT_TEST(a_split_index_and_a_shallow_clone_arrive),
		GIT_TEST(the_config_in_the_place_has_no_secrets_and_no_programs),
		GIT_TEST(what_a_repository_sets_up_does_not_run),
		GIT_TEST(submodules_are_refused_once_they_are_checked_out),
		GIT_TEST(what_cannot_be_carried_is_refused_in_words),
		GIT_TEST(a_repository_leads_nowhere_its_owner_may_not_go),
		GIT_TEST(a_cancelled_inspection_ends),
		cmocka_unit_test(addresses_lose_what_is_private),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
