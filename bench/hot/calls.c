// Which functions of a program run: `calls ADDRESSES OUT PROGRAM ARGUMENTS...`
//
// ADDRESSES: starts of functions, hexadecimal, one a line. Each gets a breakpoint, which is taken out when it is met, so that
// a run of some thousand functions is not disturbed for longer than a blink. OUT: those that were met, in the order of
// their first call, in all threads, and in the child that still runs on the program's memory before its own execve.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 1 << 18 };
static const unsigned char TRAP = 0xcc;

struct point {
	unsigned long at;
	unsigned char was, set;
};

static struct point points[MOST];
static size_t count;

static int order(const void *left, const void *right)
{
	unsigned long l = ((const struct point *)left)->at, r = ((const struct point *)right)->at;
	return (l > r) - (l < r);
}

static void met(int task, int memory, FILE *out)
{
	struct user_regs_struct registers;
	if (ptrace(PTRACE_GETREGS, task, 0, &registers))
		return;
	struct point key = { .at = registers.rip - 1 };
	struct point *point = bsearch(&key, points, count, sizeof *points, order);
	if (!point)
		return;
	if (point->set) {
		point->set = 0;
		if (pwrite(memory, &point->was, 1, (off_t)point->at) == 1)
			fprintf(out, "%lx\n", point->at);
	}
	registers.rip--;
	ptrace(PTRACE_SETREGS, task, 0, &registers);
}

int main(int argc, char **argv)
{
	FILE *list = argc > 3 ? fopen(argv[1], "r") : NULL, *out = list ? fopen(argv[2], "w") : NULL;
	if (!out)
		return fputs("usage: calls ADDRESSES OUT PROGRAM ARGUMENTS...\n", stderr), 2;
	while (count < MOST && fscanf(list, "%lx", &points[count].at) == 1)
		points[count++].set = 1;
	qsort(points, count, sizeof *points, order);

	pid_t program = fork();
	if (!program) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		execv(argv[3], argv + 3);
		_exit(127);
	}
	int status = 0;
	waitpid(program, &status, 0);
	ptrace(PTRACE_SETOPTIONS, program, 0,
	       PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL);
	char path[32];
	snprintf(path, sizeof path, "/proc/%d/mem", program);
	int memory = open(path, O_RDWR);
	for (size_t i = 0; i < count; i++)
		if (pread(memory, &points[i].was, 1, (off_t)points[i].at) != 1 ||
		    pwrite(memory, &TRAP, 1, (off_t)points[i].at) != 1)
			points[i].set = 0;
	ptrace(PTRACE_CONT, program, 0, 0);

	for (;;) {
		int task = waitpid(-1, &status, __WALL);
		if (task < 0 || (task == program && !WIFSTOPPED(status)))
			break;
		if (!WIFSTOPPED(status))
			continue;
		int signal = WSTOPSIG(status), event = status >> 16;
		if (event == PTRACE_EVENT_EXEC) { // another program: none of ours
			ptrace(PTRACE_DETACH, task, 0, 0);
			continue;
		}
		if (signal == SIGTRAP && !event)
			met(task, memory, out);
		ptrace(PTRACE_CONT, task, 0, event || signal == SIGTRAP || signal == SIGSTOP ? 0 : signal);
	}
	fclose(out);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
