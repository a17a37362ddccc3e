package everfold.regex;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import org.apache.spark.sql.UDFRegistration;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.api.java.UDF3;
import org.apache.spark.sql.api.java.UDF4;
import org.apache.spark.sql.types.DataTypes;

// Compiled by Janino, so without lambdas and without type arguments that need inference.

/** Registers the functions below: everfold/sql/functions/java_regex.py writes calls of them. */
public final class RegexFunctions {
    public void register(UDFRegistration session) {
        session.register("everfold_regexp_find", new Find(), DataTypes.BooleanType);
        session.register("everfold_regexp_position", new Position(), DataTypes.IntegerType);
        session.register("everfold_regexp_extract", new Extract(), DataTypes.StringType);
        session.register("everfold_regexp_extract_all", new ExtractAll(), DataTypes.createArrayType(DataTypes.StringType));
        session.register("everfold_regexp_replace", new Replace(), DataTypes.StringType);
        session.register("everfold_regexp_split", new Split(), DataTypes.createArrayType(DataTypes.StringType));
        session.register("everfold_regexp_is_valid", new IsValid(), DataTypes.BooleanType);
        session.register("everfold_like", new Like(), DataTypes.BooleanType);
    }
}

/** A value has used its steps. */
final class TooManySteps extends RuntimeException {
    TooManySteps() {
        super("too many steps", null, false, false);
    }
}

/** A string that counts how often the matcher looks at a character. */
final class CountedText implements CharSequence {
    private final String text;
    private long left;

    CountedText(String text, long steps) {
        this.text = text;
        this.left = steps;
    }

    public int length() {
        return text.length();
    }

    public char charAt(int index) {
        if (--left < 0) {
            throw new TooManySteps();
        }
        return text.charAt(index);
    }

    public CharSequence subSequence(int start, int end) {
        return text.substring(start, end);
    }

    public String toString() {
        return text;
    }

    void stop() {
        left = 0;
    }
}

/** A compiled pattern, and how long a string may be for which it needs no counting. */
final class KnownPattern {
    /** Steps that are never counted: they take some milliseconds. */
    private static final double FREE_STEPS = 1e6;
    private static final int MAX_CACHED = 1000;
    private static final ConcurrentHashMap CACHE = new ConcurrentHashMap();

    final Pattern pattern;
    final int freeChars;

    private KnownPattern(String regex) {
        pattern = Pattern.compile(regex);
        freeChars = countFreeChars(regex);
    }

    static KnownPattern of(String regex) {
        KnownPattern known = (KnownPattern) CACHE.get(regex);
        if (known == null) {
            known = new KnownPattern(regex);
            if (CACHE.size() >= MAX_CACHED) {
                CACHE.clear();
            }
            CACHE.put(regex, known);
        }
        return known;
    }

    /**
     * Without repeated groups, time is at most a power of the length: one for the start of the
     * match, and one for each repetition. Repeated groups recurse, and can take exponential time.
     */
    private static int countFreeChars(String regex) {
        int exponent = 1;
        for (int i = 0; i < regex.length(); i++) {
            char c = regex.charAt(i);
            char next = i + 1 < regex.length() ? regex.charAt(i + 1) : ' ';
            if (c == ')' && "*+?{".indexOf(next) >= 0) {
                return 0;
            }
            if ("*+?{|".indexOf(c) >= 0 || c == '\\' && (next == 'k' || next >= '1' && next <= '9')) {
                exponent++;
            }
        }
        return (int) Math.pow(FREE_STEPS, 1.0 / exponent);
    }
}

/** An operation on a string and a pattern that is bounded in time and memory. */
abstract class Bounded implements java.io.Serializable {
    static final long STEPS = 30000000L;
    static final long STEPS_PER_CHAR = 100L;
    /** Java's matcher recurses for each repetition of a group. */
    static final long DEEP_STACK_BYTES = 256L << 20;
    private static final int SHOWN_CHARS = 60;
    private static final Object ONE_AT_A_TIME = new Object();

    /** Returns the result for a string that has a pattern. */
    abstract Object search(Matcher matcher, String text, Object argument);

    final Object evaluate(Object text, Object regex, Object argument, Object location) {
        if (text == null || regex == null) {
            return null;
        }
        String string = (String) text;
        try {
            try {
                return attempt(string, (String) regex, argument);
            } catch (StackOverflowError overflow) {
                return attemptOnDeepStack(string, (String) regex, argument);
            }
        } catch (TooManySteps stop) {
            throw failure("takes too long for", string, location);
        } catch (StackOverflowError overflow) {
            throw failure("needs too much memory for", string, location);
        }
    }

    private Object attempt(String text, String regex, Object argument) {
        KnownPattern known = KnownPattern.of(regex);
        if (text.length() <= known.freeChars) {
            return search(known.pattern.matcher(text), text, argument);
        }
        return search(known.pattern.matcher(count(text)), text, argument);
    }

    private static CountedText count(String text) {
        return new CountedText(text, STEPS + STEPS_PER_CHAR * text.length());
    }

    private Object attemptOnDeepStack(String text, String regex, Object argument) {
        Attempt attempt = new Attempt(this, text, count(text), regex, argument);
        synchronized (ONE_AT_A_TIME) {
            Thread thread = new Thread(null, attempt, "everfold-regex", DEEP_STACK_BYTES);
            thread.setDaemon(true);
            thread.start();
            boolean interrupted = false;
            while (thread.isAlive()) {
                try {
                    thread.join();
                } catch (InterruptedException stop) {
                    interrupted = true;
                    attempt.counted.stop();
                }
            }
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
        if (attempt.thrown instanceof Error) {
            throw (Error) attempt.thrown;
        }
        if (attempt.thrown != null) {
            throw (RuntimeException) attempt.thrown;
        }
        return attempt.result;
    }

    /** A failure that everfold reports as its error; the driver has only classes of Java and Spark. */
    static RuntimeException failure(String problem, String text, Object location) {
        String shown = text.substring(0, text.offsetByCodePoints(0, Math.min(SHOWN_CHARS, text.codePointCount(0, text.length()))));
        shown = shown.replaceAll("[\\x00-\\x1f\\x85\\u2028\\u2029]", " ");
        if (shown.length() < text.length()) {
            shown = shown + "…";
        }
        String size = String.format(java.util.Locale.ROOT, "%,d", new Object[] {Integer.valueOf(text.length())});
        return new RuntimeException(
            "[USER_RAISED_EXCEPTION] everfold[regex-too-costly]: the pattern " + problem + " '" + shown + "', a string of " + size
            + " characters," + location);
    }

    private static final class Attempt implements Runnable {
        final Bounded operation;
        final String text;
        final CountedText counted;
        final String regex;
        final Object argument;
        Object result;
        Throwable thrown;

        Attempt(Bounded operation, String text, CountedText counted, String regex, Object argument) {
            this.operation = operation;
            this.text = text;
            this.counted = counted;
            this.regex = regex;
            this.argument = argument;
        }

        public void run() {
            try {
                result = operation.search(KnownPattern.of(regex).pattern.matcher(counted), text, argument);
            } catch (RuntimeException failed) {
                thrown = failed;
            } catch (Error failed) {
                thrown = failed;
            }
        }
    }
}

/** Whether a pattern matches anywhere. */
final class Find extends Bounded implements UDF3 {
    public Object call(Object text, Object regex, Object location) {
        return evaluate(text, regex, null, location);
    }

    Object search(Matcher matcher, String text, Object argument) {
        return Boolean.valueOf(matcher.find());
    }
}

/** Position of the first match, from 1, or 0. */
final class Position extends Bounded implements UDF3 {
    public Object call(Object text, Object regex, Object location) {
        return evaluate(text, regex, null, location);
    }

    Object search(Matcher matcher, String text, Object argument) {
        return Integer.valueOf(matcher.find() ? matcher.start() + 1 : 0);
    }
}

/** A group of the first match, or ''. */
final class Extract extends Bounded implements UDF4 {
    public Object call(Object text, Object regex, Object group, Object location) {
        return group == null ? null : evaluate(text, regex, group, location);
    }

    Object search(Matcher matcher, String text, Object group) {
        String value = matcher.find() ? matcher.group(((Integer) group).intValue()) : null;
        return value == null ? "" : value;
    }
}

/** A group of every match. */
final class ExtractAll extends Bounded implements UDF4 {
    public Object call(Object text, Object regex, Object group, Object location) {
        return group == null ? null : evaluate(text, regex, group, location);
    }

    Object search(Matcher matcher, String text, Object group) {
        List values = new ArrayList();
        while (matcher.find()) {
            String value = matcher.group(((Integer) group).intValue());
            values.add(value == null ? "" : value);
        }
        return values.toArray(new String[0]);
    }
}

/** The string with every match replaced by a literal string. */
final class Replace extends Bounded implements UDF4 {
    public Object call(Object text, Object regex, Object by, Object location) {
        return by == null ? null : evaluate(text, regex, by, location);
    }

    Object search(Matcher matcher, String text, Object by) {
        StringBuilder result = new StringBuilder();
        int end = 0;
        while (matcher.find()) {
            result.append(text, end, matcher.start()).append((String) by);
            end = matcher.end();
        }
        return end == 0 && result.length() == 0 ? text : result.append(text, end, text.length()).toString();
    }
}

/** The parts between matches, at most `limit` if it is positive. */
final class Split extends Bounded implements UDF4 {
    public Object call(Object text, Object regex, Object limit, Object location) {
        return limit == null ? null : evaluate(text, regex, limit, location);
    }

    Object search(Matcher matcher, String text, Object limit) {
        List parts = new ArrayList();
        int most = ((Integer) limit).intValue();
        int end = 0;
        while ((most <= 0 || parts.size() < most - 1) && matcher.find()) {
            if (matcher.end() > 0) {  // as Pattern.split: an empty match at the start separates nothing
                parts.add(text.substring(end, matcher.start()));
                end = matcher.end();
            }
        }
        parts.add(text.substring(end));
        return parts.toArray(new String[0]);
    }
}

/** Whether a string is a pattern of Java. */
final class IsValid extends Bounded implements UDF1 {
    public Object call(Object regex) {
        try {
            return evaluate("", regex, null, "");
        } catch (PatternSyntaxException invalid) {
            return Boolean.FALSE;
        }
    }

    Object search(Matcher matcher, String text, Object argument) {
        return Boolean.TRUE;
    }
}

/** LIKE: `%` is any string, `_` a character except the end of a line. */
final class Like implements UDF4 {
    private static final int ONE = -1;
    private static final int ANY = -2;

    public Object call(Object text, Object pattern, Object escape, Object location) {
        if (text == null || pattern == null || escape == null) {
            return null;
        }
        try {
            String string = (String) text;
            return Boolean.valueOf(matches(string, parse((String) pattern, (String) escape)));
        } catch (TooManySteps stop) {
            throw Bounded.failure("takes too long for", (String) text, location);
        }
    }

    private static int[] parse(String pattern, String escape) {
        int[] chars = pattern.codePoints().toArray();
        int escaping = escape.isEmpty() ? -3 : escape.codePointAt(0);
        int[] tokens = new int[chars.length];
        int count = 0;
        for (int i = 0; i < chars.length; i++) {
            int c = chars[i];
            if (c == escaping) {
                i++;
                if (i == chars.length || chars[i] != '%' && chars[i] != '_' && chars[i] != escaping) {
                    throw new IllegalArgumentException("LIKE: the escape character does not precede `%`, `_` or itself in '" + pattern + "'");
                }
                tokens[count++] = chars[i];
            } else if (c == '%') {
                if (count == 0 || tokens[count - 1] != ANY) {
                    tokens[count++] = ANY;
                }
            } else {
                tokens[count++] = c == '_' ? ONE : c;
            }
        }
        return java.util.Arrays.copyOf(tokens, count);
    }

    /** On a mismatch, only the last `%` takes one more character: earlier ones need not. */
    private static boolean matches(String text, int[] tokens) {
        long left = Bounded.STEPS + Bounded.STEPS_PER_CHAR * text.length();
        int at = 0;
        int token = 0;
        int any = -1;
        int start = 0;
        while (at < text.length()) {
            if (--left < 0) {
                throw new TooManySteps();
            }
            int c = text.codePointAt(at);
            if (token < tokens.length && tokens[token] == ANY) {
                any = token++;
                start = at;
            } else if (token < tokens.length && (tokens[token] == c || tokens[token] == ONE && !isLineEnd(c))) {
                at += Character.charCount(c);
                token++;
            } else if (any >= 0) {
                token = any + 1;
                start += Character.charCount(text.codePointAt(start));
                at = start;
            } else {
                return false;
            }
        }
        while (token < tokens.length && tokens[token] == ANY) {
            token++;
        }
        return token == tokens.length;
    }

    private static boolean isLineEnd(int c) {
        return c == '\n' || c == '\r' || c == 0x85 || c == 0x2028 || c == 0x2029;
    }
}
