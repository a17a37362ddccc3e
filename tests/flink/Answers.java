import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.client.deployment.ClusterClientJobClientAdapter;
import org.apache.flink.client.deployment.executors.PipelineExecutorUtils;
import org.apache.flink.client.program.MiniClusterClient;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.DeploymentOptions;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.core.execution.PipelineExecutor;
import org.apache.flink.core.execution.PipelineExecutorFactory;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.TableDescriptor;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.catalog.Column;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.ProviderContext;
import org.apache.flink.table.connector.RuntimeConverter;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.sink.SinkV2Provider;
import org.apache.flink.table.connector.source.DataStreamScanProvider;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.LocalZonedTimestampType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.table.types.logical.TimeType;
import org.apache.flink.table.types.logical.TimestampType;
import org.apache.flink.table.types.logical.utils.LogicalTypeUtils;
import org.apache.flink.table.types.utils.TypeConversions;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;

/**
 * Runs queries on Flink. Reads one question per line from standard input, as JSON:
 * {@code {id, mode, options, tables: [{name, ddl, upsert, changing, columns, rows}], query}}. The cells of `rows` are strings
 * or null; the first cell of each row is its row kind. Writes one line per answer, in any order: {@code {id, columns: [[name,
 * type]], changes: [[kind, cell, ...]]}}, or {@code {id, errors: [message, ...]}} with the outermost exception first.
 */
public final class Answers {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, JsonNode> FED = new ConcurrentHashMap<>();
    private static final Map<String, List<List<String>>> EMITTED = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        int workers = Integer.parseInt(args[0]);
        long seconds = Long.parseLong(args[1]);
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        ExecutorService questions = Executors.newFixedThreadPool(workers);
        ExecutorService jobs = Executors.newCachedThreadPool();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode question = JSON.readTree(line);
            questions.submit(() -> {
                ObjectNode answer = answerInTime(question, jobs, seconds);
                answer.set("id", question.get("id"));
                synchronized (answers) {
                    answers.println(answer);
                }
            });
        }
        System.exit(0);
    }

    private static ObjectNode answerInTime(JsonNode question, ExecutorService jobs, long seconds) {
        Future<ObjectNode> answer = jobs.submit(() -> answer(question));
        try {
            return answer.get(seconds, TimeUnit.SECONDS);
        } catch (TimeoutException | InterruptedException late) {
            answer.cancel(true);
            return errors(new TimeoutException("no answer within " + seconds + " s"));
        } catch (ExecutionException failed) {
            return errors(failed.getCause());
        }
    }

    private static ObjectNode errors(Throwable error) {
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode messages = answer.putArray("errors");
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            messages.add(cause.getClass().getSimpleName() + ": " + cause.getMessage());
        }
        return answer;
    }

    private static ObjectNode answer(JsonNode question) throws Exception {
        String id = question.get("id").asText();
        Configuration options = new Configuration();
        question.get("options").properties().forEach(each -> options.setString(each.getKey(), each.getValue().asText()));
        EnvironmentSettings.Builder settings = EnvironmentSettings.newInstance().withConfiguration(options);
        options.set(DeploymentOptions.TARGET, "shared-cluster");
        boolean batch = question.get("mode").asText().equals("batch");
        TableEnvironment env = TableEnvironment.create((batch ? settings.inBatchMode() : settings.inStreamingMode()).build());
        List<String> fed = new ArrayList<>();
        try {
            for (JsonNode table : question.get("tables")) {
                String key = id + "/" + table.get("name").asText();
                FED.put(key, table);
                fed.add(key);
                env.executeSql(table.get("ddl").asText() + " WITH ('connector' = 'fed-rows', 'key' = '" + key + "')");
            }
            EMITTED.put(id, new ArrayList<>());
            return collect(env, id, env.sqlQuery(question.get("query").asText()));
        } finally {
            fed.forEach(FED::remove);
            EMITTED.remove(id);
        }
    }

    /** Inserts the query's rows into a sink that accepts all row kinds, so that every update comes with the old row. */
    private static ObjectNode collect(TableEnvironment env, String id, Table query) throws Exception {
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode columns = answer.putArray("columns");
        Schema.Builder schema = Schema.newBuilder();
        for (Column column : query.getResolvedSchema().getColumns()) {
            LogicalType type = LogicalTypeUtils.removeTimeAttributes(column.getDataType().getLogicalType()).copy(true);
            columns.addArray().add(column.getName()).add(type.asSummaryString());
            schema.column(column.getName(), TypeConversions.fromLogicalToDataType(type));
        }
        env.createTemporaryTable(
                "emitted_rows", TableDescriptor.forConnector("fed-rows").schema(schema.build()).option("key", id).build());
        TableResult job = query.insertInto("emitted_rows").execute();
        try {
            job.await();
        } catch (InterruptedException late) {
            job.getJobClient().orElseThrow().cancel();
            throw late;
        }
        ArrayNode changes = answer.putArray("changes");
        for (List<String> row : EMITTED.get(id)) {
            row.forEach(changes.addArray()::add);
        }
        return answer;
    }

    /** Runs all jobs in one cluster inside this process; Flink's local executor starts a cluster for each job. */
    public static final class Cluster implements PipelineExecutorFactory {
        private static final MiniCluster CLUSTER = start();

        private static MiniCluster start() {
            Configuration configuration = new Configuration();
            configuration.set(TaskManagerOptions.MANAGED_MEMORY_SIZE, MemorySize.ofMebiBytes(512));
            configuration.set(RestOptions.BIND_PORT, "0");
            MiniClusterConfiguration.Builder cluster = new MiniClusterConfiguration.Builder();
            cluster.setConfiguration(configuration).setNumTaskManagers(1).setNumSlotsPerTaskManager(8);
            MiniCluster started = new MiniCluster(cluster.build());
            try {
                started.start();
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
            return started;
        }

        @Override
        public String getName() {
            return "shared-cluster";
        }

        @Override
        public boolean isCompatibleWith(Configuration configuration) {
            return getName().equals(configuration.get(DeploymentOptions.TARGET));
        }

        @Override
        public PipelineExecutor getExecutor(Configuration options) {
            return (pipeline, configuration, classLoader) -> {
                StreamGraph graph = PipelineExecutorUtils.getStreamGraph(pipeline, configuration);
                MiniClusterClient client = new MiniClusterClient(configuration, CLUSTER);
                return client.submitJob(graph)
                        .thenApply(id -> new ClusterClientJobClientAdapter<>(() -> client, id, classLoader));
            };
        }
    }

    /** The connector of the tables: the rows of a question as a source, and the sink for its answer. */
    public static final class Factory implements DynamicTableSourceFactory, DynamicTableSinkFactory {
        private static final ConfigOption<String> KEY = ConfigOptions.key("key").stringType().noDefaultValue();

        @Override
        public String factoryIdentifier() {
            return "fed-rows";
        }

        @Override
        public Set<ConfigOption<?>> requiredOptions() {
            return Set.of(KEY);
        }

        @Override
        public Set<ConfigOption<?>> optionalOptions() {
            return Set.of();
        }

        @Override
        public DynamicTableSource createDynamicTableSource(Context context) {
            JsonNode table = FED.get(context.getCatalogTable().getOptions().get(KEY.key()));
            return new Source(table, context.getPhysicalRowDataType());
        }

        @Override
        public DynamicTableSink createDynamicTableSink(Context context) {
            return new Answer(context.getCatalogTable().getOptions().get(KEY.key()), context.getPhysicalRowDataType());
        }
    }

    /** Emits the rows of a table in their order, from one task. */
    private record Source(JsonNode table, DataType type) implements ScanTableSource {
        @Override
        public ChangelogMode getChangelogMode() {
            if (!table.get("changing").asBoolean()) {
                return ChangelogMode.insertOnly();
            }
            return table.get("upsert").asBoolean() ? ChangelogMode.upsert() : ChangelogMode.all();
        }

        @Override
        public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
            List<RowData> rows = rows(context.createDataStructureConverter(type));
            return new DataStreamScanProvider() {
                @Override
                @SuppressWarnings("deprecation") // its successor rejects an empty list
                public DataStream<RowData> produceDataStream(ProviderContext provider, StreamExecutionEnvironment env) {
                    return env.fromCollection(rows, InternalTypeInfo.of(type.getLogicalType()));
                }

                @Override
                public boolean isBounded() {
                    return true;
                }
            };
        }

        private List<RowData> rows(DynamicTableSource.DataStructureConverter converter) {
            converter.open(RuntimeConverter.Context.create(Answers.class.getClassLoader()));
            RowType row = (RowType) type.getLogicalType();
            List<RowData> rows = new ArrayList<>();
            for (JsonNode cells : table.get("rows")) {
                Row made = Row.withPositions(kind(cells.get(0).asText()), row.getFieldCount());
                int at = 1;
                for (JsonNode name : table.get("columns")) {
                    int field = row.getFieldIndex(name.asText());
                    made.setField(field, read(cells.get(at++).textValue(), row.getTypeAt(field)));
                }
                rows.add((RowData) converter.toInternal(made));
            }
            return rows;
        }

        @Override
        public DynamicTableSource copy() {
            return this;
        }

        @Override
        public String asSummaryString() {
            return "fed rows";
        }
    }

    /** Stores every change as strings, under the key of its question. */
    private record Answer(String id, DataType type) implements DynamicTableSink {
        @Override
        public ChangelogMode getChangelogMode(ChangelogMode requested) {
            return ChangelogMode.all();
        }

        @Override
        public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
            return SinkV2Provider.of(new Keep(id, type, context.createDataStructureConverter(type)));
        }

        @Override
        public DynamicTableSink copy() {
            return this;
        }

        @Override
        public String asSummaryString() {
            return "answer";
        }
    }

    private record Keep(String id, DataType type, DynamicTableSink.DataStructureConverter converter) implements Sink<RowData> {
        @Override
        public SinkWriter<RowData> createWriter(WriterInitContext context) {
            converter.open(RuntimeConverter.Context.create(Answers.class.getClassLoader()));
            List<LogicalType> types = type.getLogicalType().getChildren();
            List<List<String>> emitted = EMITTED.get(id);
            return new SinkWriter<>() {
                @Override
                public void write(RowData data, Context at) {
                    Row row = (Row) converter.toExternal(data);
                    List<String> cells = new ArrayList<>(List.of(row.getKind().shortString()));
                    for (int i = 0; i < types.size(); i++) {
                        cells.add(write(row.getField(i), types.get(i)));
                    }
                    emitted.add(cells);
                }

                private String write(Object value, LogicalType type) {
                    return Answers.write(value, type);
                }

                @Override
                public void flush(boolean endOfInput) {}

                @Override
                public void close() {}
            };
        }
    }

    private static RowKind kind(String name) {
        for (RowKind kind : RowKind.values()) {
            if (kind.shortString().equals(name)) {
                return kind;
            }
        }
        throw new IllegalArgumentException("not a row kind: " + name);
    }

    private static Object read(String cell, LogicalType type) {
        if (cell == null) {
            return null;
        }
        return switch (type.getTypeRoot()) {
            case CHAR, VARCHAR -> cell;
            case BOOLEAN -> Boolean.valueOf(cell);
            case TINYINT -> Byte.valueOf(cell);
            case SMALLINT -> Short.valueOf(cell);
            case INTEGER -> Integer.valueOf(cell);
            case BIGINT -> Long.valueOf(cell);
            case FLOAT -> Float.valueOf(cell);
            case DOUBLE -> Double.valueOf(cell);
            case DECIMAL -> new BigDecimal(cell);
            case DATE -> LocalDate.parse(cell);
            case TIME_WITHOUT_TIME_ZONE -> LocalTime.parse(cell);
            case TIMESTAMP_WITHOUT_TIME_ZONE -> LocalDateTime.parse(cell.replace(' ', 'T'));
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE -> Instant.parse(cell.replace(' ', 'T'));
            case ARRAY -> readArray(cell, type.getChildren().get(0));
            default -> throw new IllegalArgumentException("no cells of type " + type.asSummaryString());
        };
    }

    private static Object[] readArray(String cell, LogicalType element) {
        try {
            List<Object> values = new ArrayList<>();
            JSON.readTree(cell).forEach(each -> values.add(read(each.isNull() ? null : each.asText(), element)));
            return values.toArray((Object[]) java.lang.reflect.Array.newInstance(element.getDefaultConversion(), 0));
        } catch (java.io.IOException error) {
            throw new IllegalArgumentException("not an array: " + cell, error);
        }
    }

    /** Formats a value as in the cells of case files. */
    private static String write(Object value, LogicalType type) {
        if (value == null) {
            return null;
        }
        return switch (type.getTypeRoot()) {
            case BOOLEAN -> value.equals(true) ? "TRUE" : "FALSE";
            case DECIMAL -> ((BigDecimal) value).toPlainString();
            case TIME_WITHOUT_TIME_ZONE -> pattern("HH:mm:ss", ((TimeType) type).getPrecision()).format((LocalTime) value);
            case TIMESTAMP_WITHOUT_TIME_ZONE ->
                pattern("yyyy-MM-dd HH:mm:ss", ((TimestampType) type).getPrecision()).format((LocalDateTime) value);
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE ->
                pattern("yyyy-MM-dd HH:mm:ss", ((LocalZonedTimestampType) type).getPrecision())
                                .format(((Instant) value).atOffset(ZoneOffset.UTC))
                        + "Z";
            case BINARY, VARBINARY -> java.util.HexFormat.of().formatHex((byte[]) value);
            case ARRAY, MAP, MULTISET, ROW -> json(value, type);
            default -> value.toString();
        };
    }

    private static DateTimeFormatter pattern(String pattern, int digits) {
        return DateTimeFormatter.ofPattern(digits == 0 ? pattern : pattern + "." + "S".repeat(digits));
    }

    private static String json(Object value, LogicalType type) {
        if (value == null) {
            return "null";
        }
        List<LogicalType> parts = type.getChildren();
        List<String> written = new ArrayList<>();
        return switch (type.getTypeRoot()) {
            case ARRAY -> {
                for (int i = 0; i < java.lang.reflect.Array.getLength(value); i++) {
                    written.add(json(java.lang.reflect.Array.get(value, i), parts.get(0)));
                }
                yield "[" + String.join(", ", written) + "]";
            }
            case MAP, MULTISET -> {
                Map<String, String> sorted = new TreeMap<>();
                ((Map<?, ?>) value).forEach((key, item) -> sorted.put(
                        String.valueOf(write(key, parts.get(0))),
                        parts.size() == 1 ? item.toString() : json(item, parts.get(1))));
                sorted.forEach((key, item) -> written.add(quote(key) + ": " + item));
                yield "{" + String.join(", ", written) + "}";
            }
            case ROW -> {
                List<String> names = ((RowType) type).getFieldNames();
                for (int i = 0; i < names.size(); i++) {
                    written.add(quote(names.get(i)) + ": " + json(((Row) value).getField(i), parts.get(i)));
                }
                yield "{" + String.join(", ", written) + "}";
            }
            case BOOLEAN -> value.toString();
            case TINYINT, SMALLINT, INTEGER, BIGINT, FLOAT, DOUBLE, DECIMAL -> write(value, type);
            default -> quote(write(value, type));
        };
    }

    private static String quote(String text) {
        return JSON.getNodeFactory().textNode(text).toString();
    }
}
