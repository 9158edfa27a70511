// Buffered: streams with buffers of the size of the argument; 0: the default. `lines` is text, `records` has
// pieces of 128 bytes and a flush, `pieces` pieces of two sizes, `large` pieces without a buffer.
import java.io.*;
public class Buffered {
    static OutputStream open(String name, int size) throws IOException {
        OutputStream file = new FileOutputStream(name);
        return size > 0 ? new BufferedOutputStream(file, size) : new BufferedOutputStream(file);
    }
    public static void main(String[] arguments) throws IOException {
        int size = Integer.parseInt(arguments[0]);
        OutputStream file = new FileOutputStream("lines");
        try (Writer out = new OutputStreamWriter(size > 0 ? new BufferedOutputStream(file, size) : file)) {
            for (int n = 0; n < 40000; n++) out.write("line " + n + "\n");
        }
        try (OutputStream out = open("records", size)) {
            byte[] record = new byte[128];
            for (int n = 0; n < 20000; n++) {
                out.write(record);
                if (n == 10000) out.flush();
            }
        }
        try (DataOutputStream out = new DataOutputStream(open("pieces", size))) {
            for (int n = 0; n < 40000; n++) {
                out.writeInt(n);
                out.writeLong(n);
            }
        }
        try (OutputStream out = new FileOutputStream("large")) {
            for (int n = 0; n < 20; n++) out.write(new byte[100000]);
        }
    }
}
