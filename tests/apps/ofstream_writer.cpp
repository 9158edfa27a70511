// ofstream_writer: C++ streams, small and large pieces, a seek back, and standard output.
#include <fstream>
#include <iostream>
#include <string>
int main() {
    std::ofstream small("small"), large("large", std::ios::binary);
    for (int i = 0; i < 10000; i++) small << "line " << i << '\n';
    for (int i = 0; i < 16; i++) large << std::string(100000, 'a' + i);
    large.seekp(5).write("seek", 4);
    std::ofstream("appended", std::ios::app) << "more" << std::endl;
    std::cout << "out" << std::endl;
    std::cerr << "err" << std::endl;
    return small && large ? 0 : 1;
}
