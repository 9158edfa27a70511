// throwing: a signal's handler throws out of a blocked write, through the hook, and the program catches it.
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <unistd.h>

static char data[1 << 20];

static void tick(int) { throw std::runtime_error("late"); }

int main() {
    int ends[2];
    struct sigaction action = {};
    action.sa_handler = tick;
    action.sa_flags = SA_NODEFER;
    if (pipe(ends) != 0 || sigaction(SIGALRM, &action, nullptr) != 0)
        return 2;
    for (int times = 0; times < 3; times++) {
        try {
            ualarm(50000, 0);
            // More than a pipe holds.
            if (write(ends[1], data, sizeof data) != 0)
                return 3;
        } catch (std::exception &error) {
            printf("caught %s\n", error.what());
        }
    }
    return 0;
}
