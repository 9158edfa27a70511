// buffered: C++ streams whose buffers have the size of the argument; 0: the default. `lines` has pieces of
// several sizes, `records` pieces of 64 bytes with a flush after half of them, `large` pieces that pass the
// buffer by.
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>
struct Out {
    std::vector<char> memory;
    std::ofstream stream;
    Out(const char *name, size_t size) : memory(size) {
        if (size > 0) stream.rdbuf()->pubsetbuf(memory.data(), size);
        stream.open(name);
    }
};
int main(int, char **argv) {
    size_t size = std::strtoul(argv[1], nullptr, 10);
    Out lines("lines", size), records("records", size), large("large", size);
    for (int i = 0; i < 20000; i++) lines.stream << "line " << i * i << '\n';
    std::string record(64, 'r');
    for (int i = 1; i <= 40000; i++) {
        records.stream << record;
        if (i == 20000) records.stream.flush();
    }
    for (int i = 0; i < 20; i++) large.stream << std::string(100000, 'x');
    return lines.stream && records.stream && large.stream ? 0 : 1;
}
