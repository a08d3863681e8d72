import { Tabs } from "antd";
import { useMessages } from "@/settings/context";
import { Page } from "@/ui/page";
import { useUrlValue } from "@/ui/url-state";
import { Apps } from "./apps";
import { Bindings } from "./bindings";
import { Businesses } from "./businesses";
import { Check } from "./check";
import { Roles } from "./roles";
import { Users } from "./users";
import "./access.css";

const views = {
  users: Users,
  apps: Apps,
  roles: Roles,
  bindings: Bindings,
  businesses: Businesses,
  check: Check,
};
type TabName = keyof typeof views;

export function Component() {
  const { access: text } = useMessages();
  const [wanted, setTab] = useUrlValue("tab", "users");
  const tab: TabName = Object.hasOwn(views, wanted) ? (wanted as TabName) : "users";
  const View = views[tab];
  return (
    <Page title={text.title}>
      <Tabs
        activeKey={tab}
        onChange={setTab}
        items={(Object.keys(views) as TabName[]).map((key) => ({ key, label: text.tab[key] }))}
      />
      <View />
    </Page>
  );
}
