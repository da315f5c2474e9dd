#include "git_fixture.h"
#include "git/refs.h"

/* A host with something that would show that a program ran, and a place with one commit more. */
static void set_trap(struct git_fixture *f)
{
	SH(f->host,
	   "echo 1 >a; git add .; git commit -qm one; printf '#!/bin/sh\\ntouch %s/ran\\n' "
	   ">../evil; "
	   "chmod +x ../evil; for h in post-index-change reference-transaction post-checkout "
	   "update post-update; do cp ../evil .git/hooks/$h; done; "
	   "git config filter.x.clean %s/evil; git config filter.x.process %s/evil; "
	   "git config filter.x.required true; git config core.fsmonitor %s/evil; "
	   "git config core.alternateRefsCommand %s/evil; git config gpg.program %s/evil",
	   f->base, f->base, f->base, f->base, f->base, f->base);
	stage(f);
	SH(f->place, "echo 2 >>a; echo b >b; git add .; git commit -qm two");
	SH(f->base, "rm -f ran; git -C host for-each-ref >refs; cp host/.git/config config; "
		    "sha256sum host/.git/index >index; find host/.git -type f | sort >files");
}

/* Nothing ran, nothing of the host's repository is different. */
static void assert_untouched(struct git_fixture *f)
{
	assert_sh(f->base, "ls ran 2>/dev/null || echo no", "no");
	assert_sh(f->base,
		  "git -C host for-each-ref | diff refs -; cmp config host/.git/config; "
		  "sha256sum -c --quiet index; find host/.git -type f | sort | diff files -",
		  "");
}

static void assert_refused(struct git_fixture *f, const char *words)
{
	import(f);
	assert_false(json_bool(f->report, "taken", true));
	assert_report(f, "reason", words);
	settle(f);
	assert_moved(f, false);
	assert_untouched(f);
	assert_sh(f->base,
		  "git -C host -c core.fsmonitor=false fsck --strict --no-dangling 2>&1 | "
		  "grep -v '^notice: ' || true",
		  "");
}

static void what_a_place_sets_up_does_not_come_back(void **state)
{
	struct git_fixture *f = *state;

	set_trap(f);
	SH(f->place,
	   "mkdir -p .git/hooks .git/objects/info .git/info; cp ../evil .git/hooks/pre-commit; "
	   "git config core.fsmonitor %s/evil; git config alias.status '!%s/evil'; "
	   "echo %s/secret/.git/objects >.git/objects/info/alternates; "
	   "echo '* filter=x' >.git/info/attributes; echo '* filter=x' >.gitattributes",
	   f->base, f->base, f->base);
	fetch(f);
	/* Even if somebody fetched them. */
	SH(f->base, "cp -r place/.git/config place/.git/hooks place/.git/info fetched/.git; "
		    "mkdir -p fetched/.git/objects/info; "
		    "cp place/.git/objects/info/alternates fetched/.git/objects/info");
	import(f);
	apply_files(f);
	settle(f);
	assert_moved(f, true);
	assert_report(f, "index", "updated");
	assert_sh(f->base,
		  "ls ran 2>/dev/null || echo no; cmp config host/.git/config; "
		  "ls host/.git/hooks/pre-commit host/.git/objects/info/alternates 2>/dev/null "
		  "|| true; cmp host/.git/info/attributes place/.git/info/attributes "
		  ">/dev/null 2>&1 && echo came || true",
		  "no");
}

static void broken_and_lying_objects_stay_out(void **state)
{
	struct git_fixture *f = *state;

	set_trap(f);
	fetch(f);
	SH(f->base, "cp -a fetched sound; b=$(git -C place rev-parse HEAD:b); p=${b:0:2}/${b:2}; "
		    "chmod +w fetched/.git/objects/$p; truncate -s 10 fetched/.git/objects/$p");
	assert_refused(f, "");
	/* Another blob's bytes under this one's name. */
	SH(f->base,
	   "rm -rf fetched; cp -a sound fetched; b=$(git -C place rev-parse HEAD:b); "
	   "a=$(git -C place rev-parse HEAD:a); "
	   "cp -f fetched/.git/objects/${a:0:2}/${a:2} fetched/.git/objects/${b:0:2}/${b:2}");
	assert_refused(f, "");
	/* The same for a tree, and for the commit itself. */
	SH(f->base, "rm -rf fetched; cp -a sound fetched; b=$(git -C place rev-parse HEAD:); "
		    "a=$(git -C place rev-parse HEAD^:); "
		    "cp -f host/.git/objects/${a:0:2}/${a:2} fetched/.git/objects/${b:0:2}/${b:2}");
	assert_refused(f, "");
	SH(f->base, "rm -rf fetched; cp -a sound fetched; b=$(git -C place rev-parse HEAD); "
		    "a=$(git -C place rev-parse HEAD^); "
		    "cp -f host/.git/objects/${a:0:2}/${a:2} fetched/.git/objects/${b:0:2}/${b:2}");
	assert_refused(f, "");
	/* One is missing. */
	SH(f->base, "rm -rf fetched; cp -a sound fetched; b=$(git -C place rev-parse HEAD:b); "
		    "rm -f fetched/.git/objects/${b:0:2}/${b:2}");
	assert_refused(f, "");
	/* A pack that is none. */
	SH(f->base,
	   "rm -rf fetched; cp -a sound fetched; mkdir -p fetched/.git/objects/pack; "
	   "head -c 1000 /dev/urandom >fetched/.git/objects/pack/pack-$(printf '%%040d' 1).pack");
	assert_refused(f, "packs is broken");
	/* All of it again, as it was: it was the damage that was refused. */
	SH(f->base, "rm -rf fetched; cp -a sound fetched");
	import(f);
	assert_true(json_bool(f->report, "taken", false));
}

static void unsound_commits_stay_out_and_are_told(void **state)
{
	struct git_fixture *f = *state;

	set_trap(f);
	SH(f->place,
	   "c=$(git cat-file commit HEAD | sed 's/^author .*/author nobody/' | "
	   "git hash-object -t commit -w --stdin --literally); git update-ref refs/heads/main $c");
	fetch(f);
	assert_refused(f, "not sound");
	/* A tree that would put a file into .git. */
	SH(f->base, "rm -rf fetched; mkdir fetched");
	SH(f->place, "b=$(git rev-parse HEAD:b); "
		     "i=$(printf '100755 evil\\0%%b' \"$(echo $b | sed 's/../\\\\x&/g')\" | "
		     "git hash-object -t tree -w --stdin --literally); "
		     "t=$(printf '40000 .git\\0%%b' \"$(echo $i | sed 's/../\\\\x&/g')\" | "
		     "git hash-object -t tree -w --stdin --literally); "
		     "git update-ref refs/heads/main $(git commit-tree -p HEAD^ -m x $t)");
	fetch(f);
	assert_refused(f, "not sound");
}

static void refs_that_lead_elsewhere_stay_out(void **state)
{
	struct git_fixture *f = *state;

	set_trap(f);
	fetch(f);
	SH(f->base, "cp -a fetched sound; echo 'ref: ../../../etc/passwd' >fetched/.git/HEAD");
	assert_refused(f, "HEAD");
	SH(f->base, "echo 'ref: refs/heads/../../config' >fetched/.git/HEAD");
	assert_refused(f, "HEAD");
	SH(f->base, ": >fetched/.git/HEAD");
	assert_refused(f, "HEAD");
	SH(f->base, "head -c 100000 /dev/zero >fetched/.git/HEAD");
	assert_refused(f, "HEAD");
	SH(f->base,
	   "rm -rf fetched; cp -a sound fetched; ln -s /etc/passwd fetched/.git/refs/heads/x");
	assert_refused(f, "is a link");
	SH(f->base, "rm -rf fetched; cp -a sound fetched; mkfifo fetched/.git/refs/heads/x");
	assert_refused(f, "is a link or no file");
	SH(f->base, "rm -rf fetched; cp -a sound fetched; rm -r fetched/.git/refs; "
		    "ln -s ../../host/.git/refs fetched/.git/refs");
	assert_refused(f, "is a link");
	SH(f->base,
	   "rm -rf fetched; cp -a sound fetched; echo nonsense >fetched/.git/refs/heads/x");
	assert_refused(f, "refs/heads/x");
	SH(f->base, "rm -rf fetched; cp -a sound fetched; cp fetched/.git/refs/heads/main "
		    "'fetched/.git/refs/heads/x.lock'");
	assert_refused(f, "name that git does not allow");
	SH(f->base, "rm -rf fetched; cp -a sound fetched; o=$(git -C place rev-parse HEAD); "
		    "echo \"$o refs/heads/../../config\" >fetched/.git/packed-refs");
	assert_refused(f, "packed-refs, line 1");
	SH(f->base, "printf 'x\\0y' >fetched/.git/packed-refs");
	assert_refused(f, "packed-refs");
	SH(f->base, "yes \"$(git -C place rev-parse HEAD) refs/heads/x\" | head -c 20000000 "
		    ">fetched/.git/packed-refs");
	assert_refused(f, "packed-refs");
	SH(f->base, "rm -rf fetched; cp -a sound fetched; "
		    "git -C place rev-parse HEAD: >fetched/.git/refs/heads/main");
	assert_refused(f, "no commit");
	SH(f->base, "rm -rf fetched; cp -a sound fetched; "
		    "printf '%%040d\\n' 7 >fetched/.git/refs/heads/main");
	assert_refused(f, "");
}

static void a_git_that_is_no_directory_is_told(void **state)
{
	struct git_fixture *f = *state;

	set_trap(f);
	SH(f->base, "echo 'gitdir: /etc' >fetched/.git");
	assert_refused(f, "no directory");
	SH(f->base, "rm fetched/.git; ln -s ../host/.git fetched/.git");
	assert_refused(f, "no directory");
}

static void an_index_that_lies_stays_out(void **state)
{
	struct git_fixture *f = *state;

	set_trap(f);
	fetch(f);
	import(f);
	apply_files(f);
	SH(f->base, "cp -a host host.before; cp -a fetched sound");

	static const char *const bad[] = {
		"echo nonsense >fetched/.git/index",
		/* An entry's name becomes one in .git; git itself would not read it back. */
		"python3 - <<'E'\nimport "
		"hashlib\np='fetched/.git/index'\nd=open(p,'rb').read()[:-20]\n"
		"i=d.index(b'\\0\\1a\\0')\nd=d[:i]+b'\\0\\4.git\\0'+d[i+4+3:]\n"
		"open(p,'wb').write(d+hashlib.sha1(d).digest())\nE",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		SH(f->base, "rm -rf fetched host; cp -a sound fetched; cp -a host.before host; "
			    "rm -f fetched/.git/index; cp sound/.git/index fetched/.git/index");
		SH(f->base, "%s", bad[i]);
		import(f);
		settle(f);
		assert_moved(f, true);
		assert_sh(f->base, "sha256sum -c --quiet index; ls ran 2>/dev/null || true", "");
	}
}

static void an_entry_that_is_no_file_stays_out(void **state)
{
	struct git_fixture *f = *state;

	set_trap(f);
	SH(f->place, "git update-index --add --cacheinfo 100644,$(git rev-parse HEAD),odd");
	fetch(f);
	assert_refused(f, "no blob");
	SH(f->base, "rm -rf fetched; mkdir fetched");
	SH(f->place, "git update-index --add --cacheinfo 100644,$(printf '%%040d' 5),odd");
	fetch(f);
	assert_refused(f, "");
}

static void state_of_a_merge_is_looked_at(void **state)
{
	struct git_fixture *f = *state;

	set_trap(f);
	SH(f->place,
	   "mkdir .git/rebase-merge; echo 'exec ../evil' >.git/rebase-merge/git-rebase-todo; "
	   "echo $'../../x\\n' >.git/MERGE_HEAD; printf '%%040d\\n' 3 >.git/CHERRY_PICK_HEAD; "
	   "echo text >.git/AUTO_MERGE");
	come_home(f);
	assert_report(f, "index", "updated");
	assert_sh(f->host,
		  "ls -d .git/rebase-merge .git/MERGE_HEAD .git/CHERRY_PICK_HEAD "
		  ".git/AUTO_MERGE 2>/dev/null || true",
		  "");
	assert_sh(f->base, "ls ran 2>/dev/null || echo no", "no");
}

static void names_in_each_others_way_do_not_lose_head(void **state)
{
	struct git_fixture *f = *state;

	set_trap(f);
	SH(f->place, "echo c >c; git add c; t=$(git commit-tree -p HEAD -m x $(git write-tree)); "
		     "printf '%%s refs/heads/x\\n%%s refs/heads/x/y\\n' $t $t >>.git/packed-refs; "
		     "git update-ref refs/berth/0199a000-0000-7000-8000-00000000ffff $t");
	fetch(f);
	import(f);
	assert_true(json_bool(f->report, "taken", false));
	assert_report(f, "reason", "not kept");
	assert_sh(f->base, "git -C host for-each-ref --format='%(refname)'",
		  KEPT "\nrefs/heads/main");
}

/* What is packed small may be large; git streams it. */
static void a_large_object_packed_small_is_taken(void **state)
{
	struct git_fixture *f = *state;

	set_trap(f);
	SH(f->place,
	   "head -c 300M /dev/zero >zeros; git -c core.bigFileThreshold=1m add zeros; "
	   "git commit -qm big; rm zeros; git rm -q --cached zeros; git commit -qm small");
	fetch(f);
	import(f);
	assert_true(json_bool(f->report, "taken", false));
	assert_int_equal(json_int(f->report, "commits", 0), 3);
}

static void only_what_is_asked_for_comes_back(void **state)
{
	static const char *const yes[] = {
		".git",
		".git/HEAD",
		".git/index",
		".git/packed-refs",
		".git/refs/heads/main",
		".git/refs/stash",
		".git/MERGE_HEAD",
		".git/objects/ab/cdef0123456789cdef0123456789cdef012345",
		".git/objects/pack/pack-cdef0123456789cdef0123456789cdef01234567.pack",
		".git/sharedindex.cdef0123456789cdef0123456789cdef01234567",
	};
	static const char *const no[] = {
		"HEAD",
		"a/.git/HEAD",
		".gitignore",
		".git/",
		".git/config",
		".git/config.worktree",
		".git/hooks/pre-commit",
		".git/objects/info/alternates",
		".git/objects/pack/pack-cdef0123456789cdef0123456789cdef01234567.idx",
		".git/objects/pack/../../config.pack",
		".git/objects/zz/cdef0123456789cdef0123456789cdef012345",
		".git/refs/heads/../x",
		".git/refs/heads/x.lock",
		".git/refs/",
		".git/logs/HEAD",
		".git/info/exclude",
		".git/modules/x/config",
		".git/worktrees/x/HEAD",
		".git/rebase-merge/git-rebase-todo",
		".git/index.lock",
		".git/shallow",
		".git/commondir",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
		assert_true(git_path_comes_back(yes[i], strlen(yes[i])));
	for (size_t i = 0; i < ARRAY_SIZE(no); i++)
		assert_false(git_path_comes_back(no[i], strlen(no[i])));
}

/* Random names out of what git is particular about, judged by git itself. */
static void names_of_refs_are_judged_as_git_does(void **state)
{
	static const char *const parts[] = { "a",  "b",     ".", "..",   "/", "@",       "{",
					     "@{", ".lock", "~", "^",    ":", "?",       "*",
					     "[",  "\\",    " ", "\x7f", "-", "\xc3\xa4" };
	struct git_fixture *f = *state;
	struct buf script = { 0 };
	char names[200][64];
	uint64_t seed = 42;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(names[i], sizeof(names[i]), "refs/");
		for (int n = 0; n < 4; n++) {
			seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
			/* Mostly harmless letters, or every name would be refused. */
			size_t pick = (seed >> 33) % 3 ? (seed >> 40) % 2
						       : (seed >> 40) % ARRAY_SIZE(parts);
			size_t len = strlen(names[i]);

			snprintf(names[i] + len, sizeof(names[i]) - len, "%s", parts[pick]);
		}
		buf_printf(&script, "git check-ref-format '%s' && printf 1 || printf 0\n",
			   names[i]);
	}

	_cleanup_free_ char *answer = sh(f->host, "%s", buf_str(&script));

	buf_free(&script);
	assert_int_equal(strlen(answer), ARRAY_SIZE(names));
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (git_ref_is_valid(names[i], strlen(names[i])) != (answer[i] == '1'))
			fail_msg("%s: git says %c", names[i], answer[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		GIT_TEST(what_a_place_sets_up_does_not_come_back),
		GIT_TEST(broken_and_lying_objects_stay_out),
		GIT_TEST(unsound_commits_stay_out_and_are_told),
		GIT_TEST(refs_that_lead_elsewhere_stay_out),
		GIT_TEST(a_git_that_is_no_directory_is_told),
		GIT_TEST(an_index_that_lies_stays_out),
		GIT_TEST(an_entry_that_is_no_file_stays_out),
		GIT_TEST(state_of_a_merge_is_looked_at),
		GIT_TEST(names_in_each_others_way_do_not_lose_head),
		GIT_TEST(a_large_object_packed_small_is_taken),
		cmocka_unit_test(only_what_is_asked_for_comes_back),
		GIT_TEST(names_of_refs_are_judged_as_git_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
